package peering

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/config/convert"
)

// nameOf is [bgp.Peer.Name] of what r becomes.
func nameOf(r *v1alpha1.BGPPeer) string {
	if addr, err := netip.ParseAddr(r.Spec.Address); err == nil {
		return addr.String()
	}
	return string(r.Spec.Interface)
}

// resourcePeer is r as a peer of a node whose file has the ASN asn, 0 for none. It
// obeys the rules of peers in the file.
func resourcePeer(c *config.Config, asn uint32, r *v1alpha1.BGPPeer, password func(v1alpha1.SecretReference) (string, error)) (bgp.Peer, error) {
	own := asn
	if r.Spec.LocalASN != nil {
		own = uint32(*r.Spec.LocalASN)
	}
	if own == 0 {
		return bgp.Peer{}, errors.New("it has no localASN, and the file of this node no bgp.asn: add one of them")
	}
	written, err := filePeer(&r.Spec)
	if err != nil {
		return bgp.Peer{}, err
	}
	if err := c.CheckPeer(own, &written); err != nil {
		return bgp.Peer{}, err
	}
	if ref := r.Spec.PasswordSecretRef; ref != nil {
		if written.Password, err = password(*ref); err != nil {
			return bgp.Peer{}, err
		}
	}
	peer := convert.Peer(written)
	if r.Spec.LocalASN != nil {
		peer.LocalASN = own
	}
	return peer, nil
}

// filePeer is a resource as the file would have it, with the defaults that the API
// server sets, should it not have.
func filePeer(s *v1alpha1.BGPPeerSpec) (config.Peer, error) {
	p := config.Peer{
		Interface: string(s.Interface), ASN: uint32(s.ASN), Port: uint16(cmp.Or(s.Port, 179)),
		HoldTime: cmp.Or(s.HoldTime.Duration, 3*time.Second), Multihop: uint8(s.Multihop), TTLSecurity: uint8(s.TTLSecurity),
		Attributes: convert.FileAttributes(s.Attributes),
	}
	for _, a := range []struct {
		field, text string
		to          *netip.Addr
	}{
		{"address", s.Address, &p.Address}, {"localAddress", s.LocalAddress, &p.LocalAddress},
		{"nextHop4", s.NextHop4, &p.NextHop4}, {"nextHop6", s.NextHop6, &p.NextHop6},
	} {
		if a.text == "" {
			continue
		}
		var err error
		if *a.to, err = netip.ParseAddr(a.text); err != nil {
			return p, fmt.Errorf("%s: want an IP address, got %q", a.field, a.text)
		}
	}
	if b := s.BFD; b != nil {
		p.BFD = &config.BFD{
			Interval: cmp.Or(b.Interval.Duration, 50*time.Millisecond), Multiplier: uint8(cmp.Or(b.Multiplier, 3)), Multihop: b.Multihop,
		}
	}
	for _, f := range s.Families {
		p.Families = append(p.Families, config.Family(f))
	}
	return p, nil
}
