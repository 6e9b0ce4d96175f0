// Package nft carries the connections of balancers in the kernel: an nftables table of
// Herald's own, `inet herald_balancer`, gives new TCP connections to backends, and conntrack
// keeps each with its backend. No other table is touched.
package nft

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/herald-vip/herald/balancer"
)

// Errors to be told apart by errors.Is.
var (
	// ErrUnsupported is New's when the kernel lacks what is needed of nftables, or the process
	// has no right to use it. It comes with the reason.
	ErrUnsupported = errors.New("no balancing in the kernel")
	// ErrStuck is when the kernel does not answer within a second, as while another
	// program's huge batch holds the lock of nftables.
	ErrStuck = errors.New("nftables does not answer")
)

// Options adjust a Plane.
type Options struct {
	// Node is this node's name: nodes with different names begin with different backends.
	Node string
	// Outlive is for how long new connections are taken when nobody refreshes the table any
	// more, as between two versions of Herald. 0 is 30 s.
	Outlive time.Duration
}

// Plane is the kernel's [balancer.Plane]. Run keeps it alive.
type Plane struct {
	bridge Bridge
}

var _ balancer.Plane = (*Plane)(nil)

// New adopts the table of a predecessor, or makes one: what it listens at goes on, and so
// does everything that is established.
func New(log *slog.Logger, o Options) (*Plane, error) { return &Plane{}, nil }

// Apply is [balancer.Plane]'s. A backend counts as Dead before only if this Plane has not
// been told otherwise: the first Apply ends no connections.
func (p *Plane) Apply(services []balancer.Service) error { return nil }

// Counts is [balancer.Plane]'s.
func (p *Plane) Counts() ([]balancer.Count, error) { return nil, nil }

// Run refreshes what is listened at, puts back what somebody else removes of the table, and
// opens the Bridge, until ctx ends. It is to run once.
func (p *Plane) Run(ctx context.Context) { <-ctx.Done() }

// Close leaves the table as it is, for a successor: without one, it takes no new connections
// after Options.Outlive, and keeps those that are established. Run has to have ended.
func (p *Plane) Close() error { return nil }

// Bridge is the same table's, for VIPs that this node is about to lose.
func (p *Plane) Bridge() *Bridge { return &p.bridge }

// Clear is for who has no balancers and no bridge: it ends all listening that a predecessor has
// left. The table goes if no connection needs it any more; otherwise it stays, and only keeps those.
func Clear() error { return nil }

// Probe says whether balancing in the kernel can be had here: nil if so, an ErrUnsupported
// with the reason if not. It tries in an empty network namespace.
func Probe() error { return nil }
