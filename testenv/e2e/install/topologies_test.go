//go:build e2e

package install

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"testing"

	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/lab"
)

// topology is a topology that the documentation deploys.
type topology struct {
	file   string
	client string
	vips   []string
	// answering is how many of the three masters answer for the VIP at the same time.
	answering int
	// rack returns the nodes that lose power with a master's rack.
	rack func(master string) []string
}

func topologies() []topology {
	alone := func(master string) []string { return []string{master} }
	return []topology{
		{"bgp.clab.yml", "client", []string{"10.99.0.10", "fd00:99::10"}, 3, alone},
		{"flat.clab.yml", "c1", []string{"10.4.0.10", "fd00:4::10"}, 1, alone},
		{"leaf-spine.clab.yml", "client", []string{"10.99.0.10", "fd00:99::10"}, 3, func(master string) []string {
			return []string{"leaf" + master[1:], master}
		}},
	}
}

// TestTopologies boots every topology of docs/containerlab.md unchanged, and takes the
// power from one rack.
func TestTopologies(t *testing.T) {
	for _, top := range topologies() {
		t.Run(top.file, func(t *testing.T) {
			l := site.StartLab(t, top.file, nil)
			site.Must(t, l.Boot(site.Context(t)))
			before := top.answered(t, l, top.answering)

			lost := before[0]
			for _, node := range top.rack(lost) {
				site.Must(t, l.Node(node).PowerOff())
			}
			after := top.answered(t, l, min(top.answering, 2), lost)
			t.Logf("%v answered; without the rack of %s %v", before, lost, after)
		})
	}
}

// answered waits until that many masters answer the client for each address of the
// VIP, without the lost ones, and returns their names.
func (top topology) answered(t *testing.T, l *lab.Lab, want int, lost ...string) []string {
	t.Helper()
	const connections = 50 // enough to reach each of three masters
	var who []string
	site.Eventually(t, site.Soon, func() error {
		met := make(map[string]map[string]bool)
		for _, vip := range top.vips {
			met[vip] = make(map[string]bool)
			for range connections {
				c, err := site.Open(t.Context(), l.Node(top.client), net.JoinHostPort(vip, "6443"))
				if err != nil {
					return err
				}
				c.Close()
				met[vip][c.Server] = true
			}
			who = slices.Sorted(maps.Keys(met[vip]))
			if len(who) != want || slices.ContainsFunc(lost, func(m string) bool { return met[vip][m] }) {
				return fmt.Errorf("%q answered for %s, want %d masters and not %q", who, vip, want, lost)
			}
		}
		return nil
	})
	return who
}
