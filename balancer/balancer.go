// Package balancer spreads new connections over healthy backends on layer 4. It
// knows where connections may arrive ([Service]), who may take them and in which
// state each is ([Backend]); a [DataPlane] carries them, in the kernel or by itself.
//
// Established connections stay where they are, whatever changes, unless their
// backend is [Dead].
package balancer

import (
	"errors"
	"net/netip"
)

// Method is how the backend of a new connection is chosen.
type Method int

const (
	// RoundRobin takes one bucket after the other: the most even spread there is.
	RoundRobin Method = iota
	// SourceHash takes a bucket by the client's address, so that a client stays with its
	// backend while that is there.
	SourceHash
)

// String returns the method's name as in the configuration.
func (m Method) String() string {
	if m == SourceHash {
		return "source-hash"
	}
	return "round-robin"
}

// Service is a place where connections arrive, and where they may go.
type Service struct {
	// Name tells services apart.
	Name string
	// Listen are the addresses and ports whose new TCP connections are taken, of this node's
	// own clients, and of others that reach this node by them. While there are none no
	// connection is taken: what is established stays, and ends with a backend that dies.
	Listen []netip.AddrPort
	Method Method
	// Transparent keeps the client's address as the source: backends must then answer by way
	// of this node. Otherwise backends see this node's own address.
	Transparent bool
	Backends    []Backend
}

// Backend is a server that may take connections.
type Backend struct {
	// Name is the member's name, or the address if it has none.
	Name  string
	Addr  netip.AddrPort
	State State
	// Reason says in words why it is in its state.
	Reason string
	// TimedOut: it was well and is not heard any more. If it drains, connections that it has not
	// answered yet are tried elsewhere.
	TimedOut bool
}

// State is what a backend is good for.
type State int

const (
	// Dead takes no connections, and those it has are ended, so that clients connect anew.
	Dead State = iota
	// Draining takes no new connections and keeps those that it has.
	Draining
	// Serving takes new connections.
	Serving
)

// String returns "dead", "draining" or "serving".
func (s State) String() string {
	switch s {
	case Serving:
		return "serving"
	case Draining:
		return "draining"
	default:
		return "dead"
	}
}

// DataPlane carries the connections of services. Its methods are safe for concurrent use.
type DataPlane interface {
	// Apply makes services, sorted by name, the ones that are carried: all of the change or,
	// with an error that says what to do, none of it or all but what the error is about. What
	// is established stays established, except connections to backends that are Dead and were
	// not before. It costs in proportion to what changes.
	Apply(services []Service) error
	// Counts tells of each backend, by service and address, how many connections it has been
	// given since the plane has known it.
	Counts() ([]Count, error)
	// Close ends listening in such a way that a successor loses no connection.
	Close() error
}

// ServiceError is a plane's fault that is one service's only. A plane joins those of several
// by [errors.Join].
type ServiceError struct {
	Service string
	Err     error
}

// Error implements error.
func (e *ServiceError) Error() string { return "balancer " + e.Service + " " + e.Err.Error() }

// Unwrap gives the reason to [errors.As].
func (e *ServiceError) Unwrap() error { return e.Err }

// faultOf is the part of a plane's fault that is a service's or everybody's; nil if there is none.
func faultOf(service string, err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var own []error
		for _, e := range joined.Unwrap() {
			own = append(own, faultOf(service, e))
		}
		return errors.Join(own...)
	}
	var one *ServiceError
	if errors.As(err, &one) && one.Service != service {
		return nil
	}
	return err
}

// Count is the work of a backend.
type Count struct {
	Service string
	Backend netip.AddrPort
	// Connections counts those that were given to it, Open are those it has; -1 if that is not known.
	Connections uint64
	Open        int
}
