//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/admin"
	"github.com/herald-vip/herald/testenv/lab"
)

// speaker is a node that runs herald.
type speaker struct{ *lab.Node }

// status is what `herald status` says.
func (s speaker) status(t *testing.T) (admin.Status, error) {
	t.Helper()
	var status admin.Status
	out, err := run(t, s.Node, "herald", "status", "-o", "json")
	if err != nil {
		return status, err
	}
	err = json.Unmarshal([]byte(out), &status)
	return status, err
}

// peer is the named peer in the status.
func (s speaker) peer(t *testing.T, name string) (admin.Peer, error) {
	t.Helper()
	status, err := s.status(t)
	if err != nil {
		return admin.Peer{}, err
	}
	for _, p := range status.Peers {
		if p.Name == name {
			return p, nil
		}
	}
	return admin.Peer{}, fmt.Errorf("status of %s has no peer %s", s.Name(), name)
}

// addresses are those on the node's loopback interface, as the kernel has them.
func addresses(n *lab.Node) ([]netip.Addr, error) {
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
