//go:build e2e

package e2e

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/herald-vip/herald/admin"
	"github.com/herald-vip/herald/testenv/lab"
)

// cluster is a lab of three masters and two routers, in the addresses of
// bgp.clab.yml and e2e-control-plane.clab.yml.
type cluster struct {
	*lab.Lab
	masters []master
	routers []router
}

func newCluster(l *lab.Lab) *cluster {
	c := &cluster{Lab: l, routers: []router{{l.Node("r1")}, {l.Node("r2")}}}
	for i := 1; i <= 3; i++ {
		c.masters = append(c.masters, master{number: i, lab: l})
	}
	return c
}

// master is one control-plane node, of several containers.
type master struct {
	number int
	lab    *lab.Lab
	// segment says that masters and router share one, as in machines.clab.yml.
	segment bool
}

func (m master) String() string { return fmt.Sprintf("m%d", m.number) }

// Its containers; base has the network.
func (m master) base() *lab.Node      { return m.lab.Node(m.String()) }
func (m master) speaker() *lab.Node   { return m.lab.Node(m.String() + "-speaker") }
func (m master) etcd() *lab.Node      { return m.lab.Node(m.String() + "-etcd") }
func (m master) apiserver() *lab.Node { return m.lab.Node(m.String() + "-apiserver") }
func (m master) registry() *lab.Node  { return m.lab.Node(m.String() + "-registry") }

// status is what the master's speaker says.
func (m master) status(t *testing.T) (admin.Status, error) {
	t.Helper()
	return speaker{m.speaker()}.status(t)
}

// hop is the master's address on the link to a router, in the VIP's family.
func (m master) hop(r router, vip string) netip.Addr {
	j := strings.TrimPrefix(r.Name(), "r")
	if m.segment {
		return netip.MustParseAddr(fmt.Sprintf(map[string]string{"ipv4": "10.0.%s.%d", "ipv6": "fd00:%s::%d"}[family(vip)], j, m.number))
	}
	if family(vip) == "ipv6" {
		return netip.MustParseAddr(fmt.Sprintf("fd00:%s:%d::1", j, m.number))
	}
	return netip.MustParseAddr(fmt.Sprintf("10.%s.%d.1", j, m.number))
}

// bound says whether the master has the VIP's addresses, both of them; an
// error if it has one alone.
func (m master) bound() (bool, error) {
	list, err := addresses(m.base())
	if err != nil {
		return false, err
	}
	has4 := slices.Contains(list, netip.MustParseAddr(vip4))
	has6 := slices.Contains(list, netip.MustParseAddr(vip6))
	if has4 != has6 {
		return false, fmt.Errorf("%s has the addresses %v", m, list)
	}
	return has4, nil
}

// announced waits until the master's speaker says that it announces the VIP,
// to whichever routers there are.
func (m master) announced(t *testing.T) {
	t.Helper()
	eventually(t, soon, func() error {
		status, err := m.status(t)
		if err != nil {
			return err
		}
		for _, v := range status.VIPs {
			if v.Stage != "announced" || v.Error != "" {
				return fmt.Errorf("%s has %s %s: %s %s", m, v.Address, v.Stage, v.Reason, v.Error)
			}
		}
		return nil
	})
}

// announces waits until exactly these masters announce the VIP: the kernel
// routes of all routers, in both families, lead to them, and only they have
// the addresses.
func (c *cluster) announces(t *testing.T, want ...master) {
	t.Helper()
	eventually(t, soon, func() error { return c.check(want...) })
}

func (c *cluster) check(want ...master) error {
	for _, m := range c.masters {
		bound, err := m.bound()
		if err != nil {
			return err
		}
		if bound != slices.Contains(want, m) {
			return fmt.Errorf("the VIP is on %s: %t", m, bound)
		}
	}
	for _, r := range c.routers {
		if err := leadsTo(r, want...); err != nil {
			return err
		}
	}
	return nil
}

// leadsTo returns an error unless the router's routes to the VIP, in both
// families, lead to exactly these masters.
func leadsTo(r router, masters ...master) error {
	for _, vip := range []string{vip4, vip6} {
		var want []netip.Addr
		for _, m := range masters {
			want = append(want, m.hop(r, vip))
		}
		slices.SortFunc(want, netip.Addr.Compare)
		list, err := kernelRoutes(r.Node, vip)
		if err != nil {
			return err
		}
		var got []netip.Addr
		for _, route := range list {
			got = append(got, nextHops(route)...)
		}
		slices.SortFunc(got, netip.Addr.Compare)
		if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); diff != "" {
			return fmt.Errorf("next hops of %s on %s (-want +got):\n%s", vip, r.Name(), diff)
		}
	}
	return nil
}

// tables checks that the routers' BGP tables have paths from these masters and no others.
func (c *cluster) tables(t *testing.T, masters ...master) {
	t.Helper()
	for _, r := range c.routers {
		for _, vip := range []string{vip4, vip6} {
			paths, _, err := r.paths(t, vip)
			must(t, err)
			var got, want []string
			for _, p := range paths {
				got = append(got, p.From)
			}
			for _, m := range masters {
				want = append(want, m.hop(r, vip).String())
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("%s has paths to %s from %q, want %q", r.Name(), vip, got, want)
			}
		}
	}
}

// sessionsUp waits until every router has a session with each of the masters in both families.
func (c *cluster) sessionsUp(t *testing.T, masters ...master) {
	t.Helper()
	eventually(t, soon, func() error {
		for _, r := range c.routers {
			for _, m := range masters {
				for _, vip := range []string{vip4, vip6} {
					n, err := r.neighbor(t, m.hop(r, vip).String())
					if err != nil {
						return err
					}
					if n.State != "Established" {
						return fmt.Errorf("session of %s with %s: %s", r.Name(), m.hop(r, vip), n.State)
					}
				}
			}
		}
		return nil
	})
}

// serves checks that the VIP answers from the router, over as many connections
// as it takes to meet every master that the routes lead to.
func (c *cluster) serves(t *testing.T, client *tls.Config) {
	t.Helper()
	const connections = 20
	transport := &http.Transport{DialContext: c.routers[0].DialContext, TLSClientConfig: client, DisableKeepAlives: true}
	get := http.Client{Transport: transport, Timeout: 10 * time.Second}
	for _, vip := range []string{vip4, vip6} {
		for range connections {
			if status := ask(t.Context(), &get, "https://"+net.JoinHostPort(vip, "6443")+"/readyz"); status != http.StatusOK {
				t.Fatalf("%s answers %d from %s, want 200", vip, status, c.routers[0].Name())
			}
		}
	}
}

// others are the masters besides m.
func (c *cluster) others(m master) []master {
	return slices.DeleteFunc(slices.Clone(c.masters), func(o master) bool { return o == m })
}
