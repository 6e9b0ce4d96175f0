// Package peering determines the BGP peers of a node: the peers of its own file, and the BGPPeer resources that select the
// node, with their passwords from Secrets. Everything except [Secrets] and the last step, [Peering.Apply], is pure.
package peering

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/config"
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
	if c.Realtime && !p.options.Realtime {
		slowDown(set.BGP.Peers)
	}
	return set, nil
}

// slowDown raises BFD intervals to [config.CalmInterval], as a busy node without real-time scheduling would seem dead.
func slowDown(peers []v1alpha1.Peer) {
	for i, p := range peers {
		if p.BFD != nil {
			peers[i].BFD = p.BFD.DeepCopy() // the configuration keeps its own
			peers[i].BFD.Interval.Duration = max(p.BFD.Interval.Duration, config.CalmInterval)
		}
	}
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
