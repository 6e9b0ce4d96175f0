//go:build e2e

package site

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/lab"
)

// Speaker is a node that runs herald.
type Speaker struct{ *lab.Node }

// Status returns the output of `herald status`.
func (s Speaker) Status(t *testing.T) (admin.Status, error) {
	t.Helper()
	var status admin.Status
	out, err := Run(t, s.Node, "herald", "status", "-o", "json")
	if err != nil {
		return status, err
	}
	err = json.Unmarshal([]byte(out), &status)
	return status, err
}

// Peer returns the named peer in the status.
func (s Speaker) Peer(t *testing.T, name string) (bgp.Session, error) {
	t.Helper()
	status, err := s.Status(t)
	if err != nil {
		return bgp.Session{}, err
	}
	for _, p := range status.Peers {
		if p.Name == name {
			return p, nil
		}
	}
	return bgp.Session{}, fmt.Errorf("status of %s has no peer %s", s.Name(), name)
}

// Shows waits until check returns no error for the status.
func (s Speaker) Shows(t *testing.T, check func(admin.Status) error) {
	t.Helper()
	Eventually(t, Soon, func() error {
		status, err := s.Status(t)
		if err != nil {
			return err
		}
		return check(status)
	})
}

// ShowsPeer is Shows for one peer in the status.
func (s Speaker) ShowsPeer(t *testing.T, name string, check func(bgp.Session) error) {
	t.Helper()
	Eventually(t, Soon, func() error {
		p, err := s.Peer(t, name)
		if err != nil {
			return err
		}
		return check(p)
	})
}

// Addresses returns the addresses on the node's loopback interface, from the kernel.
func Addresses(n *lab.Node) ([]netip.Addr, error) {
	h, err := n.Handle()
	if err != nil {
		return nil, err
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err != nil {
		return nil, err
	}
	list, err := h.AddrList(lo, unix.AF_UNSPEC)
	if err != nil {
		return nil, err
	}
	var out []netip.Addr
	for _, a := range list {
		if addr, ok := netip.AddrFromSlice(a.IP); ok {
			out = append(out, addr.Unmap())
		}
	}
	return out, nil
}
