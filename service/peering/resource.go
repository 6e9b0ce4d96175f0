package peering

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/bgp/asn"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/config/convert"
)

// nameOf is [bgp.Peer.Name] of what r becomes.
func nameOf(r *v1alpha1.BGPPeer) string {
	if addr, err := netip.ParseAddr(r.Spec.Address); err == nil {
		return addr.String()
	}
	if r.Spec.DefaultGateway != "" {
		return config.GatewayName(config.Family(r.Spec.DefaultGateway))
	}
	return string(r.Spec.Interface)
}

// asn reads an ASN of this node for a field of a BGPPeer.
func (r Resources) asn(field string, from *v1alpha1.NodeValue) (uint32, error) {
	kind, name, values := "label", from.Label, map[string]string(r.Labels)
	if name == "" {
		kind, name, values = "annotation", from.Annotation, r.Annotations
	}
	value, ok := values[name]
	if !ok {
		return 0, fmt.Errorf("%s: the Node has no %s %s: add it", field, kind, name)
	}
	n, err := asn.Parse(value)
	if err != nil {
		return 0, fmt.Errorf("%s: the Node's %s %s: %w", field, kind, name, err)
	}
	return n, nil
}

// resourcePeer is r as a peer of a node whose file has the ASN file, 0 for none. It
// obeys the rules of peers in the file.
func resourcePeer(c *config.Config, file uint32, r *v1alpha1.BGPPeer, api Resources) (bgp.Peer, error) {
	written, err := filePeer(&r.Spec)
	if err != nil {
		return bgp.Peer{}, err
	}
	var local uint32
	if r.Spec.LocalASN != nil {
		local = uint32(*r.Spec.LocalASN)
	}
	if from := r.Spec.LocalASNFrom; from != nil {
		if local, err = api.asn("localASNFrom", from); err != nil {
			return bgp.Peer{}, err
		}
	}
	own := cmp.Or(local, file)
	if own == 0 {
		return bgp.Peer{}, errors.New("it has no localASN, and the file of this node no bgp.asn: add one of them")
	}
	if from := r.Spec.ASNFrom; from != nil {
		n, err := api.asn("asnFrom", from)
		if err != nil {
			return bgp.Peer{}, err
		}
		written.ASN = asn.Peer(n)
	}
	if err := c.CheckPeer(own, &written); err != nil {
		return bgp.Peer{}, err
	}
	if ref := r.Spec.PasswordSecretRef; ref != nil {
		if written.Password, err = api.Password(*ref); err != nil {
			return bgp.Peer{}, err
		}
	}
	peer := convert.Peer(written)
	peer.LocalASN = local
	return peer, nil
}

// filePeer is a resource as the file would have it, with the defaults that the API
// server sets, should it not have.
func filePeer(s *v1alpha1.BGPPeerSpec) (config.Peer, error) {
	p := config.Peer{
		Interface: string(s.Interface), DefaultGateway: config.Family(s.DefaultGateway), ASN: s.ASN, Port: uint16(cmp.Or(s.Port, 179)),
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
