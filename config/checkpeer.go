package config

import (
	"errors"
	"strings"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/internal/yaml"
)

// CheckPeer sets the derived defaults of a peer from outside the file, and validates it by the rules of
// the file; asn is this node's ASN towards it. The error has a clause for each mistake, in one line.
func (c *Config) CheckPeer(asn uint32, p *v1alpha1.Peer) error {
	derivePeer(p)
	around := *c
	around.BGP = &BGP{ASN: asn, Peers: []v1alpha1.Peer{*p}}
	r := yaml.NewReport("")
	r.Limits("", p)
	validator{Report: r, config: &around}.peer("", p)
	var mistakes Errors
	if !errors.As(r.Err(), &mistakes) {
		return nil
	}
	var said []string
	for _, e := range mistakes {
		if e.Field != "" {
			e.Message = e.Field + ": " + e.Message
		}
		said = append(said, e.Message)
	}
	return errors.New(strings.Join(said, "; "))
}
