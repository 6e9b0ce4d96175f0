package peering

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/config"
)

// asn reads an ASN of this node for a field of a BGPPeer; 0 if from is nil.
func (r Resources) asn(field string, from *v1alpha1.NodeValue) (v1alpha1.ASN, error) {
	if from == nil {
		return 0, nil
	}
	kind, name, values := "label", from.Label, map[string]string(r.Labels)
	if name == "" {
		kind, name, values = "annotation", from.Annotation, r.Annotations
	}
	value, ok := values[name]
	if !ok {
		return 0, fmt.Errorf("%s: the Node has no %s %s: add it", field, kind, name)
	}
	n, err := v1alpha1.ParseASN(value)
	if err != nil {
		return 0, fmt.Errorf("%s: the Node's %s %s: %w", field, kind, name, err)
	}
	return n, nil
}

// resourcePeer returns r as a peer of a node, with defaults, ASNs and password, and without the fields that refer to
// these. file is the ASN in the node's file, 0 without one. The peer must satisfy the rules of peers in the file.
func resourcePeer(c *config.Config, file uint32, r *v1alpha1.BGPPeer, api Resources) (v1alpha1.Peer, error) {
	p := *r.Spec.DeepCopy()
	setDefaults(&p)
	local, err := api.asn("localASNFrom", p.LocalASNFrom)
	if err != nil {
		return v1alpha1.Peer{}, err
	}
	p.LocalASN = cmp.Or(local, p.LocalASN)
	own := cmp.Or(uint32(p.LocalASN), file)
	if own == 0 {
		return v1alpha1.Peer{}, errors.New("it has no localASN, and this node's file has no bgp.asn: add one of them")
	}
	number, err := api.asn("asnFrom", p.ASNFrom)
	if err != nil {
		return v1alpha1.Peer{}, err
	}
	p.ASN = cmp.Or(number, p.ASN)
	if err := c.CheckPeer(own, &p); err != nil {
		return v1alpha1.Peer{}, err
	}
	if ref := p.PasswordSecretRef; ref != nil {
		if p.Password, err = api.Password(*ref); err != nil {
			return v1alpha1.Peer{}, err
		}
	}
	p.ASNFrom, p.LocalASNFrom, p.PasswordSecretRef, p.NodeSelectors = nil, nil, nil, nil
	return p, nil
}

// setDefaults sets the defaults that the API server sets, in case it did not.
func setDefaults(p *v1alpha1.Peer) {
	p.Port = cmp.Or(p.Port, 179)
	p.HoldTime.Duration = cmp.Or(p.HoldTime.Duration, 3*time.Second)
	if b := p.BFD; b != nil {
		b.Interval.Duration = cmp.Or(b.Interval.Duration, 50*time.Millisecond)
		b.Multiplier = cmp.Or(b.Multiplier, 3)
	}
}
