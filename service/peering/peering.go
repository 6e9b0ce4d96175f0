// Package peering determines the BGP peers of a node: the peers of its own file, and the BGPPeer resources that select the
// node, with their passwords from Secrets. Everything except [Secrets] and the last step, [Peering.Apply], is pure.
package peering

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/internal/yaml"
)

// Server applies the peers, as [bgp.Server] does.
type Server interface {
	Apply(context.Context, bgp.Config) error
}

// Options are the inputs besides the file and the API.
type Options struct {
	// Realtime reports that the process runs under real-time scheduling, which fast BFD needs.
	Realtime bool
	// RouterID derives a router ID for a node, different from the given VIPs.
	RouterID func(node string, vips ...netip.Addr) (netip.Addr, error)
	// Gateways finds the default gateways of a family.
	Gateways func(v1alpha1.Family) ([]netip.Addr, error)
}

// Peering holds the peers of a node in force. It is not safe for concurrent use.
type Peering struct {
	log      *slog.Logger
	server   Server
	options  Options
	routerID netip.Addr // derived by Options.RouterID
	gateways map[string]following
	inForce  Set
	err      error
}

// New returns a Peering without peers.
func New(log *slog.Logger, server Server, options Options) *Peering {
	return &Peering{log: log, server: server, options: options}
}

// InForce returns the peers in force.
func (p *Peering) InForce() Set { return p.inForce }

// Err returns why the last change of the API or of the default gateways is not in force; nil if it is.
func (p *Peering) Err() error { return p.err }

// Plan returns the desired peers, of c and of the API.
func (p *Peering) Plan(c *config.Config, api Resources) (Set, error) {
	set := newSet(c, FileConfig(c), api, p.inForce.resources)
	if c.BGP == nil { // the running process keeps its ASN
		set.BGP.ASN = cmp.Or(p.inForce.BGP.ASN, set.BGP.ASN)
	}
	if set.BGP.ASN == 0 {
		return set, nil
	}
	if !set.BGP.RouterID.IsValid() {
		if !p.routerID.IsValid() {
			var vips []netip.Addr
			for _, v := range c.VIPs {
				vips = append(vips, v.Addresses...)
			}
			var err error
			if p.routerID, err = p.options.RouterID(c.NodeName, vips...); err != nil {
				return Set{}, fmt.Errorf("bgp.routerID is not set and cannot be derived: %w", err)
			}
		}
		set.BGP.RouterID = p.routerID
	}
	if err := p.follow(&set); err != nil {
		return Set{}, err
	}
	for i, peer := range set.BGP.Peers {
		if c.Realtime && !p.options.Realtime && peer.BFD != nil { // a busy node would seem dead
			set.BGP.Peers[i].BFD = peer.BFD.DeepCopy() // the configuration keeps its own
			set.BGP.Peers[i].BFD.Interval.Duration = max(peer.BFD.Interval.Duration, config.CalmInterval)
		}
	}
	return set, nil
}

// Apply puts a set in force.
func (p *Peering) Apply(ctx context.Context, set Set) error {
	if set.BGP.ASN != 0 {
		if err := p.server.Apply(ctx, set.BGP); err != nil {
			return err
		}
	}
	for _, l := range set.LeftOut {
		if !l.unread && !slices.Contains(p.inForce.LeftOut, l) {
			p.log.Warn("BGPPeer is not in force", "peer", l.Peer, "reason", l.Reason)
		}
	}
	for name, peers := range set.Gateways {
		switch {
		case slices.Equal(peers, p.inForce.Gateways[name]):
		case slices.Equal(peers, []string{name}):
			p.log.Warn("no default gateway for a BGP session", "peer", name)
		default:
			p.log.Info("default gateways", "peer", name, "now", peers)
		}
	}
	p.inForce, p.err = set, nil
	return nil
}

// Renew puts changes of the API or of the default gateways in force. It reports whether something has changed and is in
// force; [Peering.Err] has the error otherwise.
func (p *Peering) Renew(ctx context.Context, c *config.Config, api Resources) (changed bool) {
	set, err := p.Plan(c, api)
	if err == nil && reflect.DeepEqual(set, p.inForce) {
		p.err = nil
		return false
	}
	if err == nil {
		err = p.Apply(ctx, set)
	}
	if err == nil {
		return true
	}
	if p.err == nil || p.err.Error() != err.Error() {
		p.log.Error("cannot put the BGP peers in force; retrying", "err", err)
	}
	p.err = err
	return false
}

// FileConfig returns the bgp section of c, with defaults if there is none. Its ASN is 0 without a section, and its
// router ID is invalid if c sets none.
func FileConfig(c *config.Config) bgp.Config {
	b := c.BGP
	if b == nil {
		b = new(config.BGP)
		yaml.SetDefaults(b)
	}
	out := bgp.Config{ASN: b.ASN, RouterID: b.RouterID, ConnectRetry: b.ConnectRetry, Peers: slices.Clone(b.Peers)}
	if l := b.Listen; l != nil {
		out.ListenPort, out.ListenAddresses = l.Port, l.Addresses
	}
	return out
}

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
