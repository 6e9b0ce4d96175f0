package config

import (
	"net/netip"
	"slices"
	"time"
)

func (v validator) bgp(p path, b *BGP) {
	v.asn(p.field("asn"), b.ASN)
	if id := b.RouterID; id.IsValid() && (!id.Is4() || id.IsUnspecified()) {
		v.errorf(p.field("routerID"), "want an IPv4 address other than 0.0.0.0, got %s", id)
	}
	v.seconds(p.field("connectRetry"), b.ConnectRetry, 2*time.Second, time.Minute, "2s to 60s")
	if b.Listen != nil {
		v.listen(p.field("listen"), b.Listen)
	}
	v.attributes(p, &b.Attributes, v.hasInternalPeer(nil))

	p = p.field("peers")
	if len(b.Peers) == 0 && !v.mayServe() {
		v.errorf(p, "at least one is needed")
	}
	first := map[string]path{}
	for i := range b.Peers {
		peer, p := &b.Peers[i], p.item(i)
		v.peer(p, peer)
		switch other, taken := first[peer.Name()]; {
		case peer.Name() == "": // reported
		case taken:
			v.errorf(p, "%s is %s already", peer.Name(), other)
		default:
			first[peer.Name()] = p
		}
	}
}

func (v validator) asn(p path, n uint32) {
	switch n {
	case 0: // RFC 7607
		v.errorf(p, "give a number from 1 to 4294967294")
	case 23456, 65535, 4294967295: // RFC 6793, RFC 7300
		v.errorf(p, "%d is reserved: give the number of an autonomous system", n)
	}
}

func (v validator) listen(p path, l *Listen) {
	v.port(p.field("port"), l.Port)
	for i, addr := range l.Addresses {
		p := p.field("addresses").item(i)
		switch {
		case !addr.IsValid():
		case addr.IsMulticast():
			v.errorf(p, "want an address of this host, got %s", addr)
		case slices.Contains(l.Addresses[:i], addr):
			v.errorf(p, "%s is listed twice", addr)
		}
	}
}

func (v validator) port(p path, port uint16) {
	if port == 0 {
		v.errorf(p, "want 1 to 65535, got 0")
	}
}

// seconds is duration for what BGP counts in whole seconds.
func (v validator) seconds(p path, d, least, most time.Duration, want string) {
	if d%time.Second != 0 {
		v.errorf(p, "want whole seconds, got %s", d)
		return
	}
	v.duration(p, d, least, most, want)
}

func (v validator) peer(p path, peer *Peer) {
	unnumbered := peer.Interface != ""
	switch {
	case unnumbered && peer.Address.IsValid():
		v.errorf(p, "has both address and interface: keep one")
	case unnumbered:
		v.link(p.field("interface"), peer.Interface)
	case peer.Address.IsValid():
		v.peerAddress(p.field("address"), peer.Address)
	default:
		v.errorf(p.field("address"), "missing: give the peer's address, or its interface if unnumbered")
	}
	v.asn(p.field("asn"), peer.ASN)
	v.port(p.field("port"), peer.Port)
	v.localAddress(p.field("localAddress"), peer)
	v.file(p.field("passwordFile"), peer.PasswordFile)
	v.seconds(p.field("holdTime"), peer.HoldTime, 3*time.Second, 65535*time.Second, "3s to 65535s")
	v.distance(p, peer)
	if peer.BFD != nil {
		v.bfd(p.field("bfd"), peer)
	}
	v.families(p.field("families"), peer.Families)
	v.nextHop(p.field("nextHop4"), peer.NextHop4, IPv4, peer)
	v.nextHop(p.field("nextHop6"), peer.NextHop6, IPv6, peer)
	v.attributes(p, &peer.Attributes, !v.isExternal(peer))
}

func (v validator) peerAddress(p path, addr netip.Addr) {
	switch {
	case !isUnicast(addr):
		v.errorf(p, "want the unicast address of a router, got %s", addr)
	case addr.Is6() && addr.IsLinkLocalUnicast() && addr.Zone() == "":
		v.errorf(p, "a link-local address needs a zone: write %s%%eth0 with the link's name", addr)
	}
	for _, vip := range v.config.VIPs {
		if slices.Contains(vip.Addresses, addr) {
			v.errorf(p, "%s is a VIP of this speaker, want the address of a router", addr)
		}
	}
}

func (v validator) localAddress(p path, peer *Peer) {
	addr := peer.LocalAddress
	switch {
	case !addr.IsValid():
	case peer.Interface != "":
		v.errorf(p, "an unnumbered session uses the link-local address: remove it")
	case !isUnicast(addr):
		v.errorf(p, "want an address of this host, got %s", addr)
	case peer.Address.IsValid() && familyOf(addr) != familyOf(peer.Address):
		v.errorf(p, "want an %s address like the peer's, got %s", familyOf(peer.Address), addr)
	}
}

// distance judges how many hops away the peer may be.
func (v validator) distance(p path, peer *Peer) {
	multihop, security := p.field("multihop"), p.field("ttlSecurity")
	if peer.Interface != "" {
		const message = "an unnumbered peer is always on the link: remove it"
		if peer.Multihop != 0 {
			v.errorf(multihop, message)
		}
		if peer.TTLSecurity != 0 {
			v.errorf(security, message)
		}
		return
	}
	if peer.Multihop != 0 && v.isInternal(peer) {
		v.errorf(multihop, "an iBGP session is not limited to one hop: remove it")
	}
	if peer.Multihop != 0 && peer.TTLSecurity != 0 {
		v.errorf(security, "multihop and ttlSecurity exclude each other: keep one")
	}
	v.between(security, int(peer.TTLSecurity), 0, 254)
}

func (v validator) bfd(p path, peer *Peer) {
	b, interval := peer.BFD, p.field("interval")
	v.duration(interval, b.Interval, 10*time.Millisecond, 10*time.Second, "10ms to 10s")
	if b.Interval < CalmInterval && !v.config.Realtime && v.wasRead("realtime") {
		v.errorf(interval, "below %s a busy node looks like a dead one: set realtime: true, or a longer interval", CalmInterval)
	}
	v.between(p.field("multiplier"), int(b.Multiplier), 2, 50)
	if b.Interval%time.Microsecond != 0 {
		v.errorf(interval, "want whole microseconds, got %s", b.Interval)
	}
	if *b.Multihop && (peer.Interface != "" || peer.Address.IsLinkLocalUnicast()) {
		v.errorf(p.field("multihop"), "a peer with a link-local address is always on the link: remove it")
	}
	if !*b.Multihop && (peer.Multihop > 1 || peer.TTLSecurity > 1) {
		v.errorf(p.field("multihop"), "the peer may be several hops away: remove it")
	}
}

// isInternal and isExternal report whether the session with peer is iBGP or eBGP; neither if an ASN is missing.
func (v validator) isInternal(peer *Peer) bool {
	return peer.ASN == v.config.BGP.ASN && peer.ASN != 0
}

func (v validator) isExternal(peer *Peer) bool {
	return peer.ASN != v.config.BGP.ASN && peer.ASN != 0 && v.config.BGP.ASN != 0
}

func (v validator) families(p path, families []Family) {
	if families != nil && len(families) == 0 {
		v.errorf(p, "list ipv4, ipv6 or both")
	}
	for i, f := range families {
		p := p.item(i)
		switch {
		case !f.valid():
			v.errorf(p, "want ipv4 or ipv6, got %s", quote(string(f)))
		case slices.Contains(families[:i], f):
			v.errorf(p, "%s is listed twice", f)
		}
	}
}

func (v validator) nextHop(p path, addr netip.Addr, family Family, peer *Peer) {
	switch {
	case !addr.IsValid():
	case familyOf(addr) != family || !isUnicast(addr) || addr.Zone() != "":
		v.errorf(p, "want an %s address of this host, got %s", family, addr)
	case !slices.Contains(peer.Families, family) && v.wasRead(p.parent().field("families")):
		v.errorf(p, "the session carries no %s routes: add %[1]s to families or remove it", family)
	}
}

// attributes judges those of the bgp section, a peer or a VIP at p; internal tells whether iBGP peers hear them.
func (v validator) attributes(p path, a *Attributes, internal bool) {
	for i, s := range a.Communities {
		_, err := ParseCommunity(s)
		v.community(p.field("communities"), a.Communities, i, err)
	}
	for i, s := range a.LargeCommunities {
		_, err := ParseLargeCommunity(s)
		v.community(p.field("largeCommunities"), a.LargeCommunities, i, err)
	}
	v.between(p.field("prepend"), a.Prepend, 0, 10)
	if a.LocalPref != nil && !internal {
		v.errorf(p.field("localPref"), "only an iBGP peer hears it: remove it")
	}
}

func (v validator) community(p path, list []string, i int, err error) {
	p = p.item(i)
	if err != nil {
		v.errorf(p, "%v", err)
	} else if slices.Contains(list[:i], list[i]) {
		v.errorf(p, "%s is listed twice", list[i])
	}
}

// hasInternalPeer reports whether a session, out of those with the given names or
// of all, is iBGP, or may be once its ASN is given.
func (v validator) hasInternalPeer(names []string) bool {
	b := v.config.BGP
	return b == nil || len(b.Peers) == 0 || v.mayServe() && names == nil || slices.ContainsFunc(b.Peers, func(peer Peer) bool {
		return !v.isExternal(&peer) && (names == nil || slices.Contains(names, peer.Name()))
	})
}
