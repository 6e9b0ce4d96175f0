//go:build e2e && kubeadm

package kubeadm

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/holders"
)

// TestFlat builds a cluster with a VIP held by ARP. Its masters are static pods that
// join: the first votes alone, the third one's vote makes three, and from then on the
// VIP survives the loss of any of them.
func TestFlat(t *testing.T) {
	const vip = "10.0.1.100"
	c := newCluster(t, vip, takesVIP(t))
	c.connect(t, "c1", vip+":6443")
	c.load(t, version, "m1", "m2", "m3", "w1")
	config := strings.ReplaceAll(block(t, guide, "On a flat layer 2", "yaml"), "10.3.0.", "10.0.1.")
	bootstrap := "  bootstrap: true      # on m1 alone\n"
	if !strings.Contains(config, bootstrap) {
		t.Fatalf("the guide's file has no %q", bootstrap)
	}
	masters := []string{"m1", "m2", "m3"}
	flat := &site.Flat{Lab: c.Lab}
	flat.Observe(t, holders.On(c.Lab, masters, []netip.Addr{netip.MustParseAddr(vip)}, netip.MustParseAddr("10.0.1.128")))
	for _, m := range masters {
		c.write(t, m, "etc/herald/gossip.key", site.ReadFile(t, "../../topologies/flat/m1/gossip.key"))
	}

	c.prepare(t, "m1", config)
	c.happens(t, "init", -1, func(t *testing.T) {
		c.start(t, guide)
		flat.Held(t, "m1")
		c.votes(t, "m1", "m1")
	})
	joins := strings.Replace(config, bootstrap, "", 1)
	for _, m := range masters[1:] {
		c.happens(t, m+" joins", 0, func(t *testing.T) {
			c.prepare(t, m, joins)
			c.join(t, m)
		})
	}
	c.votes(t, "m1", masters...)
	c.happens(t, "w1 joins", 0, func(t *testing.T) {
		c.work(t, "w1")
		c.nodesReady(t, "m1", "m2", "m3", "w1")
	})
	c.happens(t, "m1 no longer bootstraps", 0, func(t *testing.T) {
		before := c.generation(t, "m1")
		c.write(t, "m1", "etc/herald/herald.yaml", joins)
		site.Eventually(t, ready, func() error {
			now := c.generation(t, "m1")
			return site.ErrorIf(now <= before, "the configuration in force has generation %d, as before", now)
		})
		c.votes(t, "m1", masters...)
	})
	c.happens(t, "holder drained and rebooted", 0, func(t *testing.T) {
		flat.Planned(t, "m1", func() error { _, err := c.try(t, "m1", "herald drain"); return err })
		flat.Held(t, "m2", "m3")
		c.reboot(t, "m1")
		c.votes(t, "m1", masters...)
	})
	c.happens(t, "power loss of the holder", -1, func(t *testing.T) {
		holder := flat.Held(t)
		site.Must(t, c.Node(holder).PowerOff())
		flat.Held(t, slices.DeleteFunc(slices.Clone(masters), func(m string) bool { return m == holder })...)
		site.PowerOn(t, c.Node(holder))
		c.votes(t, holder, masters...)
	})
}

// votes waits until a master reports that exactly these members vote, and that it receives from
// them.
func (c *cluster) votes(t *testing.T, master string, want ...string) {
	t.Helper()
	site.Eventually(t, ready, func() error {
		status, err := site.Speaker{Node: c.Node(master)}.Status(t)
		if err != nil {
			return err
		}
		if status.Election == nil {
			return fmt.Errorf("%s has no election", master)
		}
		var got []string
		for _, m := range status.Election.Members {
			if m.Voter && m.Alive {
				got = append(got, m.Name)
			}
		}
		slices.Sort(got)
		return site.ErrorIf(!slices.Equal(got, want), "%s reports the voters %v, want %v", master, got, want)
	})
}

// generation returns the generation of the configuration in force on a machine.
func (c *cluster) generation(t *testing.T, machine string) int {
	t.Helper()
	status, err := site.Speaker{Node: c.Node(machine)}.Status(t)
	site.Must(t, err)
	return status.Config.Generation
}
