//go:build e2e

package balancer

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/internal/probe"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/lab"
)

// patience bounds a connection or an answer on a busy machine.
const patience = 5 * time.Second

// held are connections to the application that stay open.
type held struct {
	conns []*site.Conn
}

// hold opens connections from a node, one after another, and makes a request on each.
func (b *balanced) hold(t *testing.T, node, address string, many int) *held {
	t.Helper()
	h := new(held)
	t.Cleanup(h.close)
	for i := range many {
		c, err := site.Open(t.Context(), b.Node(node), address)
		if err != nil {
			t.Fatalf("connection %d of %d to %s: %v", i, many, address, err)
		}
		h.conns = append(h.conns, c)
	}
	return h
}

func (h *held) close() {
	for _, c := range h.conns {
		c.Close()
	}
}

// shares counts the connections by server.
func (h *held) shares() map[string]int { return site.Servers(h.conns) }

// intact checks that every connection still answers, from the same server.
func (h *held) intact(t *testing.T) {
	t.Helper()
	if lost := h.lost(); len(lost) > 0 {
		t.Errorf("%d of %d connections were lost, the first: %v", len(lost), len(h.conns), lost[0])
	}
}

func (h *held) lost() (lost []error) {
	for i, c := range h.conns {
		server, err := c.Ask()
		if err == nil && server != c.Server {
			err = fmt.Errorf("it has moved to %s", server)
		}
		if err != nil {
			lost = append(lost, fmt.Errorf("connection %d, to %s: %w", i, c.Server, err))
		}
	}
	return lost
}

// even checks that exactly these masters have the connections, each within 5 % of its
// share. That takes thousands of connections.
func (h *held) even(t *testing.T, masters ...string) {
	t.Helper()
	h.among(t, masters...)
	shares := h.shares()
	share := float64(len(h.conns)) / float64(len(masters))
	for _, m := range masters {
		if off := float64(shares[m])/share - 1; off > 0.05 || off < -0.05 {
			t.Errorf("of %d connections %s has %d, want %.0f ±5 %%", len(h.conns), m, shares[m], share)
		}
	}
	t.Logf("connections by master: %v", shares)
}

// among checks that exactly these masters have the connections, each at least one.
func (h *held) among(t *testing.T, masters ...string) {
	t.Helper()
	if shares := h.shares(); !slices.Equal(slices.Sorted(maps.Keys(shares)), masters) {
		t.Errorf("connections by master: %v, want some for each of %v", shares, masters)
	}
}

// load opens connections from a node to an address, one after another until the end of
// the test. It uses TLS with an apiserver, and else asks for the server's name.
func (b *balanced) load(t *testing.T, node, address string, conf *tls.Config) *site.Client {
	t.Helper()
	c := site.Connect(t, &probe.Prober{
		Target: address, Dial: b.Node(node).DialContext, TLS: conf, Identify: conf == nil,
		Interval: 20 * time.Millisecond, Timeout: patience,
	})
	c.GoesOn(t, 20)
	return c
}

// share checks that the connections that failed since a fault began before the backend
// was removed. They must be no more than its share of one in three, rounded up.
func share(t *testing.T, load *site.Client, fault, out time.Time) {
	t.Helper()
	load.GoesOn(t, 50)
	meanwhile := len(load.Since(fault)) - len(load.Since(out))
	load.Few(t, fault, meanwhile/3+2)
	load.None(t, out)
}

// end waits until a node has connections to this port of exactly one master, and
// returns it. Nodes to leave out may be without power.
func (b *balanced) end(t *testing.T, node string, port int, leaveOut ...string) (master string) {
	t.Helper()
	address := map[string]string{"w1": "10.5.0.21", "w2": "10.5.0.22"}[node]
	site.Eventually(t, site.Soon, func() error {
		var ends []string
		for _, m := range threeMasters() {
			if slices.Contains(leaveOut, m) {
				continue
			}
			out, err := site.Run(t, b.Node(m), "ss", "-Htn", "state", "established",
				fmt.Sprintf("( sport = :%d and dst = %s )", port, address))
			if err != nil {
				return err
			}
			if strings.TrimSpace(out) != "" {
				ends = append(ends, m)
			}
		}
		if len(ends) != 1 {
			return fmt.Errorf("%s has connections to %v, want a single master", node, ends)
		}
		master = ends[0]
		return nil
	})
	return master
}

// refused checks that an address refuses connections from a node immediately.
func refused(t *testing.T, n *lab.Node, address string) {
	t.Helper()
	site.Eventually(t, site.Soon, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := n.Reaches(ctx, address)
		return site.ErrorIf(err == nil || ctx.Err() != nil, "%v, want a refusal", err)
	})
}
