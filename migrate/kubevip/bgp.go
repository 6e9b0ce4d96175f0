package kubevip

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/internal/yaml"
	"github.com/herald-vip/herald/migrate"
)

const (
	// defaultASN is the default of kube-vip's own ASN and of its peers'.
	defaultASN = "65000"
	// usualTable is the default of the table for kube-vip's routes.
	usualTable = 198
	// multihopTTL is the TTL of kube-vip's multihop sessions.
	multihopTTL = 50
)

// bgp converts the settings of BGP. A list and single variables name the peers.
func (k *converter) bgp() {
	k.BGP = &config.BGP{ASN: k.asn("bgp.asn", "bgp_as")}
	k.Origins["bgp"] = k.line("bgp_enable")
	k.Origins["bgp.peers"] = k.line("bgp_peers")
	if id := k.addr("bgp_routerid", k.get("bgp_routerid"), "%s is not an IPv4 address: Herald uses the node's first global one unless bgp.routerID is set"); id.IsValid() {
		k.BGP.RouterID = id
		k.at("bgp.routerID", "bgp_routerid")
		k.Comment("bgp.routerID", "Differs on each node.")
	}
	missing := "the routers: the file names none"
	for i, s := range strings.SplitN(k.get("bgp_peers"), ",", maxList) {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		p, err := parsePeer(s)
		if err != nil {
			k.toDo("bgp_peers", "peer %d of the list: %v", i+1, err) // not quoted: it may hold a password
			missing = "the routers: none could be read"
			continue
		}
		k.addPeer(p, "bgp_peers")
	}
	addr := k.addr("bgp_peeraddress", k.get("bgp_peeraddress"), "%s is not an address: write the peer into bgp.peers by hand")
	switch {
	case addr.IsValid():
		k.addPeer(peer{
			Peer:     v1alpha1.Peer{Address: addr, ASN: v1alpha1.ASN(k.asn(yaml.Path("bgp.peers").Item(len(k.BGP.Peers)).Field("asn"), "bgp_peeras"))},
			password: k.get("bgp_peerpass") != "", multihop: k.on("bgp_multihop"),
		}, "bgp_peeraddress")
	case k.get("bgp_peeraddress") != "":
		missing = "the routers: none could be read"
	}
	if len(k.BGP.Peers) == 0 {
		k.Leave("bgp.peers", k.line("bgp_enable"), missing, "peers:", "- {address: ADDRESS, asn: ASN}")
	}
	if k.on("svc_enable") {
		k.toDo("bgp_enable", "a router accepts one session from a node: use different routers for Herald and for kube-vip with Services, or let another program announce Services")
	}
	if k.on("vip_leaderelection") {
		k.note("vip_leaderelection", "with announce: bgp there is no election: every healthy node announces, and the routers choose or share")
	}
}

// asn parses the ASN of a setting; kube-vip's default if it is not set.
func (k *converter) asn(path yaml.Path, name string) uint32 {
	return k.ASN(path, migrate.Setting{Line: k.line(name), Value: cmp.Or(k.get(name), defaultASN)})
}

// addPeer adds a peer with the settings of all peers.
func (k *converter) addPeer(p peer, source string) {
	if slices.ContainsFunc(k.BGP.Peers, func(other v1alpha1.Peer) bool { return other.Name() == p.Name() }) {
		k.note(source, "%s is a peer already: taken once", p.Name())
		return
	}
	path := yaml.Path("bgp.peers").Item(len(k.BGP.Peers))
	k.at(path, source)
	if p.password {
		k.LeavePassword(&p.Peer, path, k.line(source), source)
	}
	if p.multihop && uint32(p.ASN) == k.BGP.ASN {
		k.note(source, "%s is iBGP, which is not limited to one hop: multihop is left out", p.Name())
	} else if p.multihop {
		p.Multihop = multihopTTL
	}
	if local, err := netip.ParseAddr(k.get("bgp_sourceip")); err == nil && p.Address.IsValid() && local.Is4() == p.Address.Is4() {
		p.LocalAddress = local
	} else if k.get("bgp_sourceip") != "" {
		k.note("bgp_sourceip", "cannot be the source address of a session with %s: left out there", p.Name())
	}
	p.HoldTime.Duration = time.Second * time.Duration(k.number("bgp_hold_time", 3, math.MaxUint16, 0))
	k.nextHops(&p)
	k.BGP.Peers = append(k.BGP.Peers, p.Peer)
}

// nextHops makes the session carry both families if kube-vip's did.
func (k *converter) nextHops(p *peer) {
	mode := cmp.Or(p.mode, k.get("mpbgp_nexthop"))
	if mode == "" {
		return
	}
	p.Families = []v1alpha1.Family{v1alpha1.IPv4, v1alpha1.IPv6}
	if mode == "fixed" {
		const complaint = "%s is not an address: Herald chooses the next hop"
		p.NextHop4 = k.addr("mpbgp_ipv4", cmp.Or(p.hop4, k.get("mpbgp_ipv4")), complaint)
		p.NextHop6 = k.addr("mpbgp_ipv6", cmp.Or(p.hop6, k.get("mpbgp_ipv6")), complaint)
	}
}

// peer is a peer of kube-vip.
type peer struct {
	v1alpha1.Peer
	password, multihop bool
	mode, hop4, hop6   string // of mpbgp
}

// parsePeer parses address:as:password:multihop:port:mpbgp:bfd. The password and the last four may be
// missing. An IPv6 address is in brackets, and unnumbered: precedes an interface.
func parsePeer(s string) (peer, error) {
	var p peer
	switch {
	case strings.HasPrefix(s, "["):
		inner, rest, ok := strings.Cut(s[1:], "]")
		addr, err := netip.ParseAddr(inner)
		if !ok || err != nil {
			return p, errors.New("no IPv6 address in brackets")
		}
		p.Address, s = addr, rest
	case strings.HasPrefix(s, "unnumbered:"):
		p.Interface, _, _ = strings.Cut(strings.TrimPrefix(s, "unnumbered:"), ":")
		s = strings.TrimPrefix(s, "unnumbered:")
	default:
		before, _, _ := strings.Cut(s, ":")
		addr, err := netip.ParseAddr(before)
		if err != nil {
			return p, errors.New("it does not begin with an address, and kube-vip takes IPv6 in brackets only")
		}
		p.Address = addr
	}
	parts := append(strings.Split(s, ":"), make([]string, 7)...)
	if p.ASN.UnmarshalJSON([]byte(parts[1])) != nil {
		return p, errors.New("want the number of an autonomous system after the address")
	}
	p.password = parts[2] != ""
	var err error
	if p.multihop, err = strconv.ParseBool(cmp.Or(parts[3], "false")); err != nil {
		return p, errors.New("multihop is neither true nor false")
	}
	port, err := strconv.ParseUint(cmp.Or(parts[4], "0"), 10, 16)
	if err != nil {
		return p, errors.New("its port is invalid")
	}
	if port != 179 {
		p.Port = uint16(port)
	}
	for _, option := range strings.Split(parts[5], ";") {
		key, value, _ := strings.Cut(option, "=")
		switch key {
		case "":
		case "mpbgp_nexthop":
			p.mode = value
		case "mpbgp_ipv4":
			p.hop4 = value
		case "mpbgp_ipv6":
			p.hop6 = value
		default:
			return p, fmt.Errorf("%s is not an option of a peer", migrate.Quoted(key))
		}
	}
	p.BFD, err = parseBFD(parts[6])
	return p, err
}

// parseBFD parses enabled;receive;transmit;multiplier, with intervals in milliseconds.
func parseBFD(s string) (*v1alpha1.BFD, error) {
	if s == "" {
		return nil, nil
	}
	parts := strings.Split(s, ";")
	if len(parts) < 4 {
		return nil, errors.New("BFD wants enabled;receive;transmit;multiplier")
	}
	on, err := strconv.ParseBool(parts[0])
	if err != nil || !on {
		return nil, err
	}
	var numbers [3]uint64
	for i, usual := range []string{"300", "300", "3"} {
		numbers[i], err = strconv.ParseUint(cmp.Or(parts[i+1], usual), 10, 16)
		if err != nil || numbers[i] == 0 {
			return nil, errors.New("a number of BFD is invalid")
		}
	}
	b := &v1alpha1.BFD{Multiplier: uint8(min(numbers[2], 255))}
	b.Interval.Duration = time.Duration(max(numbers[0], numbers[1])) * time.Millisecond
	return b, nil
}
