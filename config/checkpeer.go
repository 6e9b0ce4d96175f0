package config

import (
	"errors"
	"strings"
)

// CheckPeer judges a peer that comes from elsewhere by the rules of the file's own,
// on a node whose ASN towards it is asn, after setting those of its defaults that
// depend on its other fields. The error has a clause for each mistake, in one line.
func (c *Config) CheckPeer(asn uint32, p *Peer) error {
	p.derive()
	around := *c
	around.BGP = &BGP{ASN: asn, Peers: []Peer{*p}}
	r := newReport("")
	validator{report: r, config: &around}.peer("", p)
	var said []string
	for _, e := range r.errs {
		if e.Field != "" {
			e.Message = e.Field + ": " + e.Message
		}
		said = append(said, e.Message)
	}
	if said == nil {
		return nil
	}
	return errors.New(strings.Join(said, "; "))
}
