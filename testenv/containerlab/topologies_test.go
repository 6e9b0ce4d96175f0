//go:build containerlab

package containerlab

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
)

// topology is a topology that the documentation deploys.
type topology struct {
	name   string
	client string
	vips   []string
	// answering is how many of the three masters answer for the VIP at the same time.
	answering int
	// rack returns the containers in a master's rack.
	rack func(master string) []string
}

func topologies() []topology {
	master := func(m string) []string { return []string{m + "-speaker", m + "-apiserver", m} }
	return []topology{{
		name: "bgp", client: "client", vips: []string{"10.99.0.10:6443", "[fd00:99::10]:6443"}, answering: 3,
		rack: func(m string) []string { return append(master(m), m+"-registry") },
	}, {
		name: "flat", client: "c1", vips: []string{"10.4.0.10:6443", "[fd00:4::10]:6443"}, answering: 1,
		rack: master,
	}, {
		name: "leaf-spine", client: "client", vips: []string{"10.99.0.10:6443", "[fd00:99::10]:6443"}, answering: 3,
		rack: func(m string) []string { return append(master(m), "leaf"+m[1:]) },
	}}
}

// TestTopologies deploys every topology of docs/containerlab.md as described there,
// and kills everything in one rack.
func TestTopologies(t *testing.T) {
	for _, top := range topologies() {
		t.Run(top.name, func(t *testing.T) {
			top.deploy(t)
			before := top.answered(t, top.answering)
			lost := before[0]
			args := []string{"kill"}
			for _, node := range top.rack(lost) {
				args = append(args, top.container(node))
			}
			must(t, "docker", args...)
			after := top.answered(t, min(top.answering, 2), lost)
			t.Logf("%v answered; without the rack of %s %v", before, lost, after)
		})
	}
}

// container returns containerlab's name for the container of a node.
func (top topology) container(node string) string { return "clab-" + top.name + "-" + node }

// deploy deploys the topology with containerlab, and destroys it after the test.
func (top topology) deploy(t *testing.T) {
	t.Helper()
	containerlab, file := os.Getenv("CONTAINERLAB"), "../topologies/"+top.name+".clab.yml"
	t.Cleanup(func() { cleanUp(t, containerlab, "destroy", "--cleanup", "--topo", file) })
	must(t, containerlab, "deploy", "--topo", file)
}

// answered waits until that many masters answer the client for each address of the
// VIP, without the lost ones, and returns their names.
func (top topology) answered(t *testing.T, want int, lost ...string) (who []string) {
	t.Helper()
	eventually(t, func() error {
		for _, vip := range top.vips {
			servers, err := served(t, top.container(top.client), vip)
			if err != nil {
				return err
			}
			who = slices.Sorted(maps.Keys(servers))
			if len(who) != want || slices.ContainsFunc(lost, func(m string) bool { return servers[m] > 0 }) {
				return fmt.Errorf("%q answered for %s, want %d masters and not %q", who, vip, want, lost)
			}
		}
		return nil
	})
	return who
}
