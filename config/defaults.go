package config

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/internal/yaml"
)

// derive sets the defaults that depend on the host or on other fields.
func (c *Config) derive(o options) {
	switch {
	case o.nodeName != "":
		c.NodeName = o.nodeName
	case c.NodeName == "":
		c.NodeName = strings.ToLower(o.hostname)
	}
	for i := range c.VIPs {
		v := &c.VIPs[i]
		if v.Interface == "" && v.Announce == AnnounceBGP {
			v.Interface = "lo"
		}
		if v.Kernel == nil && v.Announce == AnnounceKernel {
			v.Kernel = new(Table)
			yaml.SetDefaults(v.Kernel)
		}
		if v.Bridge == nil {
			v.Bridge = new(c.Election != nil)
		}
		for i, name := range v.Peers {
			if addr, err := netip.ParseAddr(name); err == nil {
				v.Peers[i] = addr.String() // in the canonical form, as in the name of the peer
			}
		}
	}
	if e := c.Election; e != nil {
		if !e.Bind.IsValid() {
			e.Bind = e.Members[c.NodeName]
		}
		if e.Forget == nil && e.Open() {
			e.Forget = new(4 * time.Hour)
		}
	}
	for i := range c.Balancers {
		b := &c.Balancers[i]
		if b.Check == nil && b.Backends.Members == nil {
			b.Check = new(balancer.Probe)
			yaml.SetDefaults(b.Check)
		}
		if b.Check != nil && b.Check.HTTP == nil && b.Check.TCP == nil {
			b.Check.TCP = &health.TCP{Address: balancer.BackendHost}
		}
	}
	if c.BGP == nil {
		return
	}
	for i := range c.BGP.Peers {
		derivePeer(&c.BGP.Peers[i])
	}
}

// derivePeer sets the defaults of a peer that depend on its other fields.
func derivePeer(p *v1alpha1.Peer) {
	switch {
	case p.Families != nil:
	case p.Interface != "":
		p.Families = []v1alpha1.Family{v1alpha1.IPv4, v1alpha1.IPv6}
	case p.DefaultGateway != "":
		p.Families = []v1alpha1.Family{p.DefaultGateway}
	case p.Address.IsValid():
		p.Families = []v1alpha1.Family{familyOf(p.Address)}
	}
	if p.BFD != nil && p.BFD.Multihop == nil {
		p.BFD.Multihop = new((p.Multihop > 0 || p.TTLSecurity > 0) && !p.Address.IsLinkLocalUnicast())
	}
}

// readKeys reads the gossip keys of the election.
func (c *Config) readKeys(r *yaml.Report, read func(string) ([]byte, error)) {
	if c.Election == nil || !filepath.IsAbs(c.Election.KeyFile) { // absent, or a reported mistake
		return
	}
	data, err := read(c.Election.KeyFile)
	if err == nil {
		c.Election.Keys, err = parseKeys(data)
	}
	if err != nil {
		r.Errorf("election.keyFile", "%v", err)
	}
}

// parseKeys reads gossip keys, one per line in base64, of 16, 24 or 32 bytes for AES-128, AES-192 or AES-256. The first
// encrypts and all decrypt. It skips empty lines and comments (#). Errors name the line, never its content.
func parseKeys(data []byte) ([][]byte, error) {
	var keys [][]byte
	lines := make(map[string]int) // the line of each key
	number := 0
	for line := range bytes.Lines(data) {
		number++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		key, err := base64.StdEncoding.Strict().DecodeString(string(line))
		switch first, repeated := lines[string(key)]; {
		case err != nil:
			return nil, fmt.Errorf("line %d is not base64: write the file with herald keygen", number)
		case len(key) != 16 && len(key) != 24 && len(key) != 32:
			return nil, fmt.Errorf("line %d holds a key of %d bytes, want 16, 24 or 32: write the file with herald keygen", number, len(key))
		case repeated:
			return nil, fmt.Errorf("line %d repeats the key of line %d: remove it", number, first)
		}
		lines[string(key)] = number
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, errors.New("the file has no key: write one with herald keygen")
	}
	return keys, nil
}
