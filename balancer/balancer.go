// Package balancer spreads new TCP connections over healthy backends. A [Service] has listeners and
// backends, each [Backend] has a state, and a [DataPlane] carries the connections, in the kernel or in user space.
//
// Established connections stay with their backend through all changes, unless it is [Dead].
package balancer

import (
	"errors"
	"net/netip"
)

// Service is a balancer for a data plane.
type Service struct {
	// Name identifies the service.
	Name string
	// Listen are the addresses and ports to accept new TCP connections at, from this node and from other
	// hosts. Without any, established connections stay until their backend dies.
	Listen []netip.AddrPort
	Method Method
	// Transparent keeps the client's address as the source. Backends must then answer through this node. Otherwise
	// they see this node's address.
	Transparent bool
	Backends    []Backend
}

// Backend is a server of a service.
type Backend struct {
	// Name is the member's name, or the address if it has none.
	Name  string         `json:"name"`
	Addr  netip.AddrPort `json:"address"`
	State State          `json:"state"`
	// Reason explains the state in words.
	Reason string `json:"reason"`
	// TimedOut reports that it was healthy and sends nothing any more. While it drains, connections that it has not
	// answered yet are tried elsewhere.
	TimedOut bool `json:"-"`
}

// State tells which connections a backend gets and keeps. It is empty before the first observation.
type State string

const (
	// Dead gets no connections, and its connections are reset, so that clients connect again.
	Dead State = "dead"
	// Draining gets no new connections and keeps established ones.
	Draining State = "draining"
	// Serving gets new connections.
	Serving State = "serving"
)

// DataPlane carries the connections of services. Its methods are safe for concurrent use.
type DataPlane interface {
	// Apply replaces the services, which are sorted by name. With an error, which says how to cure it, either the old services
	// stay, or the new ones apply except for the part that the error names. Established connections stay, except
	// those to backends that have become Dead. The cost is proportional to the change.
	Apply(services []Service) error
	// Counts returns the connections of each backend since the data plane has known it.
	Counts() ([]Count, error)
	// Close closes the listeners so that a successor loses no connection.
	Close() error
}

// ServiceError is an error of a data plane about one service. Errors about several are joined by [errors.Join].
type ServiceError struct {
	Service string
	Err     error
}

// Error implements error.
func (e *ServiceError) Error() string { return "balancer " + e.Service + " " + e.Err.Error() }

// Unwrap returns the reason.
func (e *ServiceError) Unwrap() error { return e.Err }

// faultOf returns the part of a data plane's error about a service or about all services; nil without one.
func faultOf(service string, err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var own []error
		for _, e := range joined.Unwrap() {
			own = append(own, faultOf(service, e))
		}
		return errors.Join(own...)
	}
	var other *ServiceError
	if errors.As(err, &other) && other.Service != service {
		return nil
	}
	return err
}

// Count counts the connections of a backend.
type Count struct {
	Service string
	Backend netip.AddrPort
	// Connections counts all connections that it got, Open the established ones; -1 if unknown.
	Connections uint64
	Open        int
}
