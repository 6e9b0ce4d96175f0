//go:build e2e

package controlplane

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/herald-vip/herald/speaker"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/lab"
)

// TestSecondChance counts a client's connections lost when a router, FRR or BIRD,
// rehashes. Where masters forward misrouted packets, only connections of a dead server
// are lost; otherwise every row loses some.
func TestSecondChance(t *testing.T) {
	columns := []*column{{router: "frr"}, {router: "frr", on: true}, {router: "bird"}, {router: "bird", on: true}}
	t.Run("routers", func(t *testing.T) {
		for _, c := range columns {
			t.Run(c.String(), func(t *testing.T) { t.Parallel(); c.fill(t) })
		}
	})
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 3, ' ', 0)
	fmt.Fprint(w, "lost")
	for _, c := range columns {
		fmt.Fprintf(w, "\t%s", c)
	}
	for i, r := range columns[0].rows {
		fmt.Fprintf(w, "\n%s", r.event)
		for _, c := range columns {
			if i < len(c.rows) {
				fmt.Fprintf(w, "\t%d of %d", c.rows[i].lost, c.rows[i].all)
			}
		}
	}
	site.Must(t, w.Flush())
	t.Logf("\n%s", &table)
}

// column counts the results in one lab of e2e-second-chance.clab.yml.
type column struct {
	router string
	on     bool // masters forward packets

	*site.Cluster
	conns []*site.Conn // that are open
	rows  []row
}

type row struct {
	event     string
	lost, all int
}

func (c *column) String() string { return c.router + map[bool]string{false: " off", true: " on"}[c.on] }

// routing returns the container of the router's daemons.
func (c *column) routing() *lab.Node { return c.Node("r1-" + c.router) }

// fill boots a lab, and makes the events of the rows happen.
func (c *column) fill(t *testing.T) {
	variables := make(map[string]string)
	if !c.on {
		text := site.ReadFile(t, "../../topologies/e2e-second-chance/herald.yaml")
		// The address must stay for as long as the router sends connections.
		text = strings.Replace(text, "announce: bgp,", "announce: bgp, bridge: false, linger: 1m,", 1)
		variables["SPEAKER_FILE"] = filepath.Join(t.TempDir(), "herald.yaml")
		site.Must(t, os.WriteFile(variables["SPEAKER_FILE"], []byte(text), 0o644))
	}
	l := site.StartLab(t, "e2e-second-chance.clab.yml", variables)
	t.Cleanup(c.close)
	c.Cluster = &site.Cluster{Lab: l, Routers: []site.Router{{Node: l.Node("r1")}}}
	site.Boot(t, l, c.routing().Name())
	for i := 1; i <= 4; i++ {
		m := site.Master{Number: i, Lab: l}
		c.Masters = append(c.Masters, m)
		site.Boot(t, l, m.Speaker().Name(), m.Apiserver().Name())
	}
	n := site.Scale(3000, 300)
	for _, event := range []func(*testing.T, int){c.fourthAnnounces, c.serverDies, c.drained, c.openedMeanwhile} {
		c.Announces(t, c.Masters...)
		if c.on {
			acquainted(t, c.Cluster)
		}
		event(t, n)
		c.close()
	}
	if passed, _ := counts(t, c.Cluster); passed > 0 != c.on {
		t.Errorf("%d packets have been forwarded", passed)
	}
}

func (c *column) fourthAnnounces(t *testing.T, n int) {
	comes := c.Masters[3]
	undrain := c.drain(t, comes)
	c.leadsTo(t, c.Others(comes)...)
	conns := c.open(t, n)
	undrain()
	c.leadsTo(t, c.Masters...)
	c.add(t, "a fourth master announces", use(conns), conns)
}

func (c *column) serverDies(t *testing.T, n int) {
	dies := c.Masters[1]
	conns := c.open(t, n)
	site.Kill(t, dies.Apiserver())
	c.leadsTo(t, c.Others(dies)...)
	lost := use(conns)
	c.add(t, "a server dies: others'", others(lost, dies), others(conns, dies))
	own := row{"a server dies: its own", len(lost) - len(others(lost, dies)), len(conns) - len(others(conns, dies))}
	if c.rows = append(c.rows, own); own.lost != own.all {
		t.Errorf("%s: %d of %d lost", own.event, own.lost, own.all)
	}
	site.Start(t, dies.Apiserver())
}

func (c *column) drained(t *testing.T, n int) {
	goes := c.Masters[0]
	conns := c.open(t, n)
	undrain := c.drain(t, goes)
	c.leadsTo(t, c.Others(goes)...)
	if c.on {
		const longer = 3 * time.Second // longer than an unused address lingers
		goes.ShowsVIPs(t, func(v admin.VIP) error {
			return site.ErrorIf(v.Stage != speaker.Lingering || time.Since(v.Since) < longer, "%s has %s %s since %v", goes, v.Address, v.Stage, v.Since)
		})
	}
	c.add(t, "a master is drained", use(conns), conns)
	c.close()
	undrain()
}

// openedMeanwhile freezes the router while a master is drained, so that it sends new
// connections there.
func (c *column) openedMeanwhile(t *testing.T, n int) {
	goes := c.Masters[2]
	site.Freeze(t, c.routing())
	undrain := c.drain(t, goes)
	goes.Shows(t, func(status admin.Status) error {
		return site.ErrorIf(status.VIPs[0].Stage == speaker.Announced || status.VIPs[1].Stage == speaker.Announced, "%s announces still", goes)
	})
	if c.on {
		site.Eventually(t, site.Soon, func() error {
			conns := c.open(t, 40)
			return site.ErrorIf(len(others(conns, goes)) < len(conns), "%s takes connections itself", goes)
		})
	}
	conns := c.open(t, n)
	site.Thaw(t, c.routing())
	c.leadsTo(t, c.Others(goes)...)
	c.add(t, "opened while a master leaves", use(conns), conns)
	c.close()
	undrain()
}

// drain begins to drain a master. If it keeps connections for others, undrain first
// waits for the last of these to end.
func (c *column) drain(t *testing.T, m site.Master) (undrain func()) {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		_, err := m.Speaker().Run(t.Context(), "herald", "drain", "--deadline", "10m")
		ended <- err
	}()
	m.Shows(t, func(status admin.Status) error { return site.ErrorIf(status.Draining == "", "%s is not drained", m) })
	return func() {
		t.Helper()
		if c.on {
			site.Must(t, <-ended) // long before its deadline
		}
		site.MustRun(t, m.Speaker(), "herald", "undrain")
		if !c.on {
			<-ended
		}
	}
}

// leadsTo waits until the router spreads over exactly these masters.
func (c *column) leadsTo(t *testing.T, masters ...site.Master) {
	t.Helper()
	site.Eventually(t, site.Soon, func() error { return site.LeadsTo(c.Routers[0], masters...) })
}

// add adds a row.
func (c *column) add(t *testing.T, event string, lost, all []*site.Conn) {
	t.Helper()
	c.rows = append(c.rows, row{event, len(lost), len(all)})
	if len(lost) > 0 == c.on {
		t.Errorf("%s: %v of %v lost", event, site.Servers(lost), site.Servers(all))
	}
}

// open opens connections, half of them over IPv6, until close.
func (c *column) open(t *testing.T, n int) (conns []*site.Conn) {
	t.Helper()
	for i := range n {
		address := net.JoinHostPort([]string{site.VIP4, site.VIP6}[i%2], fmt.Sprint(apiPort))
		conns = append(conns, site.Get[*site.Conn](t)(site.Open(t.Context(), c.Node("client"), address)))
	}
	c.conns = append(c.conns, conns...)
	return conns
}

func (c *column) close() {
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns = nil
}

// use uses all connections in parallel, and returns the lost ones.
func use(conns []*site.Conn) (lost []*site.Conn) {
	var all sync.WaitGroup
	var mu sync.Mutex
	for _, c := range conns {
		all.Go(func() {
			if server, err := c.Ask(); err != nil || server != c.Server {
				mu.Lock()
				defer mu.Unlock()
				lost = append(lost, c)
			}
		})
	}
	all.Wait()
	return lost
}

// others returns the connections of other masters.
func others(conns []*site.Conn, than site.Master) []*site.Conn {
	return slices.DeleteFunc(slices.Clone(conns), func(c *site.Conn) bool { return c.Server == than.String() })
}
