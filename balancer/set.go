package balancer

import (
	"context"
	"log/slog"
)

// Set runs balancers: it knows the state of their backends, and has planes carry their
// connections accordingly. A change of a backend reaches the plane on the goroutine that tells of it.
// Its methods may be called from any goroutine.
type Set struct {
	log    *slog.Logger
	planes [2]Plane // by Mode
}

// New returns a Set without balancers. A plane that is nil is one that this node does not have.
func New(log *slog.Logger, kernel, proxy Plane) *Set {
	return &Set{log: log, planes: [...]Plane{Kernel: kernel, Proxy: proxy}}
}

// Apply makes the given balancers the ones that run. What is unchanged runs on undisturbed, and
// what is established stays so. Configuration that cannot work is an error that says
// why, and changes nothing; a plane's fault is no error, it shows in Status while it is tried again.
func (s *Set) Apply(configs []Config) error { return nil }

// Offered tells what all members say of themselves now. The first call should come as soon as
// that is known.
func (s *Set) Offered(members []Member) {}

// Serves reports whether a balancer of this name has a backend for new connections.
func (s *Set) Serves(name string) bool { return false }

// Status tells of all balancers, sorted by name.
func (s *Set) Status() []Status { return nil }

// Run looks names up, forgets backends and tries planes again, until ctx ends. It is to run once.
func (s *Set) Run(ctx context.Context) {}

// Close stops watching backends, and closes the planes: a successor loses no connection. Run has
// to have ended.
func (s *Set) Close() error { return nil }
