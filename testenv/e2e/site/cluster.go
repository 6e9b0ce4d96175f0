//go:build e2e

package site

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/lab"
)

// Cluster is a lab of three masters and two routers, with the addresses of
// bgp.clab.yml and e2e-control-plane.clab.yml.
type Cluster struct {
	*lab.Lab
	Masters []Master
	Routers []Router
}

func NewCluster(l *lab.Lab) *Cluster {
	c := &Cluster{Lab: l, Routers: []Router{{l.Node("r1")}, {l.Node("r2")}}}
	for i := 1; i <= 3; i++ {
		c.Masters = append(c.Masters, Master{Number: i, Lab: l})
	}
	return c
}

// Master is one control-plane node, of several containers.
type Master struct {
	Number int
	Lab    *lab.Lab
	// Flat reports that masters and router share a link, as in machines.clab.yml.
	Flat bool
}

func (m Master) String() string { return fmt.Sprintf("m%d", m.Number) }

// Base returns the container with the network; the others share it.
func (m Master) Base() *lab.Node { return m.Lab.Node(m.String()) }

func (m Master) Speaker() *lab.Node { return m.Lab.Node(m.String() + "-speaker") }

func (m Master) Etcd() *lab.Node { return m.Lab.Node(m.String() + "-etcd") }

func (m Master) Apiserver() *lab.Node { return m.Lab.Node(m.String() + "-apiserver") }

func (m Master) Registry() *lab.Node { return m.Lab.Node(m.String() + "-registry") }

// Status returns the status of the master's speaker.
func (m Master) Status(t *testing.T) (admin.Status, error) {
	t.Helper()
	return Speaker{m.Speaker()}.Status(t)
}

// Shows waits until check returns no error for the status.
func (m Master) Shows(t *testing.T, check func(admin.Status) error) {
	t.Helper()
	Speaker{m.Speaker()}.Shows(t, check)
}

// ShowsVIPs is Shows for each VIP in the status.
func (m Master) ShowsVIPs(t *testing.T, check func(admin.VIP) error) {
	t.Helper()
	Speaker{m.Speaker()}.ShowsVIPs(t, check)
}

// Hop returns the master's address on the link to a router, in the VIP's family.
func (m Master) Hop(r Router, vip string) netip.Addr {
	j := strings.TrimPrefix(r.Name(), "r")
	if m.Flat {
		return netip.MustParseAddr(fmt.Sprintf(map[string]string{"ipv4": "10.0.%s.%d", "ipv6": "fd00:%s::%d"}[Family(vip)], j, m.Number))
	}
	if Family(vip) == "ipv6" {
		return netip.MustParseAddr(fmt.Sprintf("fd00:%s:%d::1", j, m.Number))
	}
	return netip.MustParseAddr(fmt.Sprintf("10.%s.%d.1", j, m.Number))
}

// bound reports whether the master has both of the VIP's addresses; it returns an
// error if it has only one.
func (m Master) bound() (bool, error) {
	list, err := Addresses(m.Base())
	if err != nil {
		return false, err
	}
	has4 := slices.Contains(list, netip.MustParseAddr(VIP4))
	has6 := slices.Contains(list, netip.MustParseAddr(VIP6))
	if has4 != has6 {
		return false, fmt.Errorf("%s has the addresses %v", m, list)
	}
	return has4, nil
}

// Announced waits until the master's speaker reports that it announces the VIP, to any routers.
func (m Master) Announced(t *testing.T) {
	t.Helper()
	m.ShowsVIPs(t, func(v admin.VIP) error {
		return ErrorIf(v.Stage != "announced" || v.Error != "", "%s has %s %s: %s %s", m, v.Address, v.Stage, v.Reason, v.Error)
	})
}

// Announces waits until exactly these masters announce the VIP: the kernel routes of
// all routers, in both families, lead to them, and only they have the addresses.
func (c *Cluster) Announces(t *testing.T, want ...Master) {
	t.Helper()
	Eventually(t, Soon, func() error { return c.Check(want...) })
}

func (c *Cluster) Check(want ...Master) error {
	for _, m := range c.Masters {
		bound, err := m.bound()
		if err != nil {
			return err
		}
		if bound != slices.Contains(want, m) {
			return fmt.Errorf("the VIP is on %s: %t", m, bound)
		}
	}
	for _, r := range c.Routers {
		if err := LeadsTo(r, want...); err != nil {
			return err
		}
	}
	return nil
}

// LeadsTo returns an error unless the router's routes to the VIP, in both families,
// lead to exactly these masters.
func LeadsTo(r Router, masters ...Master) error {
	for _, vip := range []string{VIP4, VIP6} {
		var want []netip.Addr
		for _, m := range masters {
			want = append(want, m.Hop(r, vip))
		}
		slices.SortFunc(want, netip.Addr.Compare)
		got, err := Hops(r.Node, vip)
		if err != nil {
			return err
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); diff != "" {
			return fmt.Errorf("next hops of %s on %s (-want +got):\n%s", vip, r.Name(), diff)
		}
	}
	return nil
}

// Tables checks that the routers' BGP tables have paths from exactly these masters.
func (c *Cluster) Tables(t *testing.T, masters ...Master) {
	t.Helper()
	for _, r := range c.Routers {
		for _, vip := range []string{VIP4, VIP6} {
			paths, _, err := r.Paths(t, vip)
			Must(t, err)
			var got, want []string
			for _, p := range paths {
				got = append(got, p.From)
			}
			for _, m := range masters {
				want = append(want, m.Hop(r, vip).String())
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("%s has paths to %s from %q, want %q", r.Name(), vip, got, want)
			}
		}
	}
}

// SessionsUp waits until every router has a session with each of the masters in both families.
func (c *Cluster) SessionsUp(t *testing.T, masters ...Master) {
	t.Helper()
	Eventually(t, Soon, func() error {
		for _, r := range c.Routers {
			for _, m := range masters {
				for _, vip := range []string{VIP4, VIP6} {
					n, err := r.Neighbor(t, m.Hop(r, vip).String())
					if err != nil {
						return err
					}
					if n.State != "Established" {
						return fmt.Errorf("session of %s with %s: %s", r.Name(), m.Hop(r, vip), n.State)
					}
				}
			}
		}
		return nil
	})
}

// Serves checks that the VIP answers from the router, over enough connections to reach
// every master in the routes.
func (c *Cluster) Serves(t *testing.T, client *tls.Config) {
	t.Helper()
	const connections = 20
	get := HTTPClient(c.Routers[0].Node, client)
	for _, vip := range []string{VIP4, VIP6} {
		for range connections {
			if status := Ask(t.Context(), get, "https://"+net.JoinHostPort(vip, "6443")+"/readyz"); status != http.StatusOK {
				t.Fatalf("%s answers %d from %s, want 200", vip, status, c.Routers[0].Name())
			}
		}
	}
}

// Others returns the other masters.
func (c *Cluster) Others(m Master) []Master {
	return slices.DeleteFunc(slices.Clone(c.Masters), func(o Master) bool { return o == m })
}
