package config

import (
	"net/netip"
	"slices"
	"time"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/internal/yaml"
)

func (v validator) bgp(p yaml.Path, b *BGP) {
	v.asn(p.Field("asn"), b.ASN)
	if id := b.RouterID; id.IsValid() && (!id.Is4() || id.IsUnspecified()) {
		v.Errorf(p.Field("routerID"), "want an IPv4 address other than 0.0.0.0, got %s", id)
	}
	v.wholeSeconds(p.Field("connectRetry"), b.ConnectRetry)
	if b.Listen != nil {
		v.listen(p.Field("listen"), b.Listen)
	}
	v.attributes(p, &b.Attributes, v.hasInternalPeer(nil))

	p = p.Field("peers")
	if len(b.Peers) == 0 && !v.mayServe() {
		v.Errorf(p, "at least one is needed")
	}
	first := map[string]yaml.Path{}
	for i := range b.Peers {
		peer, p := &b.Peers[i], p.Item(i)
		v.peer(p, peer)
		switch other, taken := first[peer.Name()]; {
		case peer.Name() == "": // reported
		case taken:
			v.Errorf(p, "%s is %s already", peer.Name(), other)
		default:
			first[peer.Name()] = p
		}
	}
}

func (v validator) asn(p yaml.Path, n uint32) {
	if err := v1alpha1.ASN(n).Check(); err != nil {
		v.Errorf(p, "%v", err)
	}
}

func (v validator) listen(p yaml.Path, l *Listen) {
	for i, addr := range l.Addresses {
		p := p.Field("addresses").Item(i)
		switch {
		case !addr.IsValid():
		case addr.IsMulticast():
			v.Errorf(p, "want an address of this host, got %s", addr)
		case slices.Contains(l.Addresses[:i], addr):
			v.Errorf(p, "%s is listed twice", addr)
		}
	}
}

func (v validator) wholeSeconds(p yaml.Path, d time.Duration) {
	if d%time.Second != 0 {
		v.Errorf(p, "want whole seconds, got %s", d)
	}
}

func (v validator) peer(p yaml.Path, peer *v1alpha1.Peer) {
	unnumbered, gateway := peer.Interface != "", peer.DefaultGateway != ""
	switch {
	case unnumbered && peer.Address.IsValid():
		v.Errorf(p, "has both address and interface: keep one")
	case gateway && (unnumbered || peer.Address.IsValid()):
		v.Errorf(p.Field("defaultGateway"), "excludes address and interface: keep one")
	case gateway && !isFamily(peer.DefaultGateway):
		v.Errorf(p.Field("defaultGateway"), "want ipv4 or ipv6, got %s", yaml.Quote(string(peer.DefaultGateway)))
	case gateway:
	case unnumbered:
		v.Link(p.Field("interface"), peer.Interface)
	case peer.Address.IsValid():
		v.peerAddress(p.Field("address"), peer.Address)
	case v.WasRead(p.Field("defaultGateway")):
		v.Errorf(p.Field("address"), "missing: give the peer's address, its interface if unnumbered, or defaultGateway")
	}
	if peer.ASN != v1alpha1.External {
		v.asn(p.Field("asn"), uint32(peer.ASN))
	}
	v.localAddress(p.Field("localAddress"), peer)
	v.File(p.Field("passwordFile"), peer.PasswordFile)
	v.wholeSeconds(p.Field("holdTime"), peer.HoldTime.Duration)
	if peer.ConnectRetry != nil {
		v.wholeSeconds(p.Field("connectRetry"), peer.ConnectRetry.Duration)
	}
	v.distance(p, peer)
	if peer.BFD != nil {
		v.bfd(p.Field("bfd"), peer)
	}
	if peer.Families != nil && len(peer.Families) == 0 {
		v.Errorf(p.Field("families"), "list ipv4, ipv6 or both")
	}
	uniqueItems(v, p.Field("families"), peer.Families)
	v.nextHop(p.Field("nextHop4"), peer.NextHop4, v1alpha1.IPv4, peer)
	v.nextHop(p.Field("nextHop6"), peer.NextHop6, v1alpha1.IPv6, peer)
	v.attributes(p, &peer.Attributes, !v.isExternal(peer))
}

func (v validator) peerAddress(p yaml.Path, addr netip.Addr) {
	switch {
	case !yaml.IsUnicast(addr):
		v.Errorf(p, "want the unicast address of a router, got %s", addr)
	case addr.Is6() && addr.IsLinkLocalUnicast() && addr.Zone() == "":
		v.Errorf(p, "a link-local address needs a zone: write %s%%eth0 with the link's name", addr)
	}
	if v.isVIP(addr) {
		v.Errorf(p, "%s is a VIP of this speaker, want the address of a router", addr)
	}
}

func (v validator) localAddress(p yaml.Path, peer *v1alpha1.Peer) {
	addr := peer.LocalAddress
	switch {
	case !addr.IsValid():
	case peer.Interface != "":
		v.Errorf(p, "an unnumbered session uses the link-local address: remove it")
	case !yaml.IsUnicast(addr):
		v.Errorf(p, "want an address of this host, got %s", addr)
	case peer.Address.IsValid() && familyOf(addr) != familyOf(peer.Address):
		v.Errorf(p, "want an %s address like the peer's, got %s", familyOf(peer.Address), addr)
	case isFamily(peer.DefaultGateway) && familyOf(addr) != peer.DefaultGateway:
		v.Errorf(p, "want an %s address like the gateway's, got %s", peer.DefaultGateway, addr)
	}
}

// distance validates the hops to a peer.
func (v validator) distance(p yaml.Path, peer *v1alpha1.Peer) {
	multihop, security := p.Field("multihop"), p.Field("ttlSecurity")
	if peer.Interface != "" {
		const message = "an unnumbered peer is always on the link: remove it"
		if peer.Multihop != 0 {
			v.Errorf(multihop, message)
		}
		if peer.TTLSecurity != 0 {
			v.Errorf(security, message)
		}
		return
	}
	if peer.Multihop != 0 && peer.ASN != 0 && uint32(peer.ASN) == v.config.BGP.ASN {
		v.Errorf(multihop, "an iBGP session is not limited to one hop: remove it")
	}
	if peer.Multihop != 0 && peer.TTLSecurity != 0 {
		v.Errorf(security, "multihop and ttlSecurity exclude each other: keep one")
	}
}

func (v validator) bfd(p yaml.Path, peer *v1alpha1.Peer) {
	b, interval := peer.BFD, p.Field("interval")
	if b.Interval.Duration < CalmInterval && !v.config.Realtime && v.WasRead("realtime") {
		v.Errorf(interval, "below %s a busy node looks dead: set realtime: true, or a longer interval", CalmInterval)
	}
	if b.Interval.Duration%time.Microsecond != 0 {
		v.Errorf(interval, "want whole microseconds, got %s", b.Interval.Duration)
	}
	if *b.Multihop && (peer.Interface != "" || peer.Address.IsLinkLocalUnicast()) {
		v.Errorf(p.Field("multihop"), "a peer with a link-local address is always on the link: remove it")
	}
	if !*b.Multihop && (peer.Multihop > 1 || peer.TTLSecurity > 1) {
		v.Errorf(p.Field("multihop"), "the peer may be several hops away: remove it")
	}
}

// isExternal reports whether the session with peer is eBGP; false if an ASN is missing.
func (v validator) isExternal(peer *v1alpha1.Peer) bool {
	return uint32(peer.ASN) != v.config.BGP.ASN && peer.ASN != 0 && v.config.BGP.ASN != 0
}

func (v validator) nextHop(p yaml.Path, addr netip.Addr, family v1alpha1.Family, peer *v1alpha1.Peer) {
	switch {
	case !addr.IsValid():
	case familyOf(addr) != family || !yaml.IsUnicast(addr) || addr.Zone() != "":
		v.Errorf(p, "want an %s address of this host, got %s", family, addr)
	case !peer.Carries(family) && v.WasRead(p.Parent().Field("families")):
		v.Errorf(p, "the session carries no %s routes: add %[1]s to families or remove it", family)
	}
}

// attributes validates the path attributes of the bgp section, a peer or a VIP at p; internal reports whether an iBGP peer receives them.
func (v validator) attributes(p yaml.Path, a *v1alpha1.Attributes, internal bool) {
	uniqueItems(v, p.Field("communities"), a.Communities)
	uniqueItems(v, p.Field("largeCommunities"), a.LargeCommunities)
	if a.LocalPref != nil && !internal {
		v.Errorf(p.Field("localPref"), "only iBGP peers receive it: remove it")
	}
}

// uniqueItems reports items of a list that are in it before.
func uniqueItems[T comparable](v validator, p yaml.Path, list []T) {
	for i, item := range list {
		if v.WasRead(p.Item(i)) && slices.Contains(list[:i], item) {
			v.Errorf(p.Item(i), "%v is listed twice", item)
		}
	}
}

// hasInternalPeer reports whether a session, with a peer of the given names or
// with any peer, is iBGP, or may be once its ASN is given.
func (v validator) hasInternalPeer(names []string) bool {
	b := v.config.BGP
	return b == nil || len(b.Peers) == 0 || v.mayServe() && names == nil || slices.ContainsFunc(b.Peers, func(peer v1alpha1.Peer) bool {
		return !v.isExternal(&peer) && (names == nil || slices.Contains(names, peer.Name()))
	})
}
