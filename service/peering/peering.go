// Package peering says which BGP peers a node has: those of its own file, and of the BGPPeer
// resources those that are for it, with the passwords that are in Secrets. All but [Secrets] and
// the last step, [Peering.Apply], is pure.
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

// Server has the sessions with the peers, as a [bgp.Server] does.
type Server interface {
	Apply(context.Context, bgp.Config) error
}

// Options are what peers depend on besides the file and the API.
type Options struct {
	// Realtime says that the process runs in real time, as fast BFD needs.
	Realtime bool
	// RouterID guesses one for a node that is none of the given VIPs.
	RouterID func(node string, vips ...netip.Addr) (netip.Addr, error)
	// Gateways finds the default gateways of a family.
	Gateways func(v1alpha1.Family) ([]netip.Addr, error)
}

// Peering has the peers of a node in force. It is not safe for concurrent use.
type Peering struct {
	log      *slog.Logger
	server   Server
	options  Options
	routerID netip.Addr // as guessed
	gateways map[string]following
	inForce  Set
	err      error
}

// New returns a Peering without peers.
func New(log *slog.Logger, server Server, options Options) *Peering {
	return &Peering{log: log, server: server, options: options}
}

// InForce are the peers there are.
func (p *Peering) InForce() Set { return p.inForce }

// Err is why the last change in the API, or of the default gateways, is not in force; nil if it is.
func (p *Peering) Err() error { return p.err }

// Plan is the peers of c and of the API as they should be now.
func (p *Peering) Plan(c *config.Config, api Resources) (Set, error) {
	set := newSet(c, FileConfig(c), api, p.inForce.resources)
	if c.BGP == nil { // the process keeps the ASN that it runs with
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
				return Set{}, fmt.Errorf("bgp.routerID is not set and cannot be guessed: %w", err)
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

// slowDown raises BFD intervals to those at which a busy node does not look like a dead one.
func slowDown(peers []v1alpha1.Peer) {
	for i, p := range peers {
		if p.BFD != nil {
			peers[i].BFD = p.BFD.DeepCopy() // the configuration's stays
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
			p.log.Warn("there is no default gateway to have a session with", "peer", name)
		default:
			p.log.Info("default gateways", "peer", name, "now", peers)
		}
	}
	p.inForce, p.err = set, nil
	return nil
}

// Renew puts in force what has changed in the API, or of the default gateways. It reports whether anything has changed and is in force;
// what is not is in [Peering.Err].
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
		p.log.Error("the BGP peers as they should be now are not in force; trying again", "err", err)
	}
	p.err = err
	return false
}
