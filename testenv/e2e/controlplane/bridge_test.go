//go:build e2e

package controlplane

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/internal/probe"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/routes"
	"github.com/herald-vip/herald/testenv/tap"
)

// apiPort is the port of the apiservers.
const apiPort = 6443

// testBridge checks that masters forward new connections until the routers have acted.
func (c *controlPlane) testBridge(t *testing.T) {
	c.Announces(t, c.Masters...)
	acquainted(t, c.Cluster)
	hops := c.listen(t)
	t.Run("apiservers killed one by one", func(t *testing.T) { c.testBridgedKills(t, hops) })
	t.Run("two killed at once", func(t *testing.T) { c.testTwoSick(t, hops) })
	t.Run("drain", func(t *testing.T) { c.testBridgedDrain(t, hops) })
	t.Run("established", c.testEstablished)
}

// acquainted waits until every master knows the state of all masters' servers.
func acquainted(t *testing.T, c *site.Cluster) {
	t.Helper()
	site.Eventually(t, site.Soon, func() error {
		for _, m := range c.Masters {
			status, err := m.Status(t)
			if err != nil {
				return err
			}
			if status.Election == nil || len(status.Election.Offers) != len(c.Masters) {
				return fmt.Errorf("%s has the advertisements %+v", m, status.Election)
			}
			if p := status.Passing; p == nil || p.Error != "" || len(p.Members) != len(c.Masters)-1 {
				return fmt.Errorf("%s forwards packets: %+v", m, p)
			}
			for _, o := range status.Election.Offers {
				if o.State() != "serving" || len(o.Checks) == 0 || slices.Contains(slices.Collect(maps.Values(o.Checks)), false) {
					return fmt.Errorf("%s knows member %s as %s, advertising %s", m, o.Member, o.State(), o.Said())
				}
			}
		}
		return nil
	})
}

// testBridgedKills kills one apiserver after the other. The others receive the
// connections that the router still sends to it.
func (c *controlPlane) testBridgedKills(t *testing.T, hops *hops) {
	hops.mark()
	for _, m := range c.Masters {
		client := c.connect(t)
		makes(t, client, 50)
		killed := time.Now()
		site.Kill(t, m.Apiserver())
		sendsOn(t, m, killed)
		c.Announces(t, c.Others(m)...)
		makes(t, client, 50)
		client.End()
		site.Start(t, m.Apiserver())
		c.Announces(t, c.Masters...)
		acquainted(t, c.Cluster)
	}
	hops.check(t)
}

// testTwoSick kills two apiservers at the same time, so that each master still
// considers the other healthy. Forwarded connections must not be forwarded again.
func (c *controlPlane) testTwoSick(t *testing.T, hops *hops) {
	hops.mark()
	client := c.connect(t)
	makes(t, client, 50)
	killed := time.Now()
	for _, m := range c.Masters[:2] {
		site.Kill(t, m.Apiserver())
	}
	for _, m := range c.Masters[:2] {
		sendsOn(t, m, killed)
	}
	c.Announces(t, c.Masters[2])
	makes(t, client, 50)
	client.End()
	for _, m := range c.Masters[:2] {
		site.Start(t, m.Apiserver())
	}
	hops.check(t)
	c.Announces(t, c.Masters...)
	acquainted(t, c.Cluster)
}

// testBridgedDrain drains a master. The only connections that may fail are handshakes
// in progress when a router moves them from one server to another, which happens with
// any speaker.
func (c *controlPlane) testBridgedDrain(t *testing.T, hops *hops) {
	m := c.Masters[0]
	r := c.Routers[0]
	hops.mark()
	c.mark()
	client, began := c.connect(t), time.Now()
	makes(t, client, 50)
	drained := time.Now()
	site.MustRun(t, m.Speaker(), "herald", "drain")
	sendsOn(t, m, drained)
	c.Announces(t, c.Others(m)...)
	makes(t, client, 50)
	client.End()
	site.MustRun(t, m.Speaker(), "herald", "undrain")
	c.Announces(t, c.Masters...)
	moved := slices.DeleteFunc(c.routes[r.Name()].Since(), func(change routes.Change) bool {
		return change.Prefix != site.HostPrefix(site.VIP4) || slices.Contains(change.Now, m.Hop(r, site.VIP4))
	})
	const (
		early = 5 * time.Millisecond // the kernel may report a change before it takes effect
		most  = 5                    // handshakes in progress at that moment
	)
	failed := client.Failed(began)
	for _, a := range failed {
		if !site.Cuts(moved, a.At.Add(-early), a.At.Add(a.Latency)) {
			site.FailTiming(t, client.Starved(a.At), "a connection failed (%v), the drain began at %s; the routes: %v", a, drained.Format("05.000"), moved)
		}
	}
	if len(failed) > most {
		site.FailTiming(t, client.Starved(began), "%d connections failed as the routes moved once, want %d at most: %v", len(failed), most, failed)
	}
	hops.check(t)
}

// sendsOn waits until the master's speaker reports that it has forwarded new
// connections to the VIP since then.
func sendsOn(t *testing.T, m site.Master, since time.Time) {
	t.Helper()
	m.Shows(t, func(status admin.Status) error {
		for _, v := range status.VIPs {
			if v.Address == site.IP(site.VIP4) && v.Bridged.After(since) {
				return nil
			}
		}
		return fmt.Errorf("%s has not forwarded connections since %v: %+v", m, since, status.VIPs)
	})
}

// connect begins to connect to the VIP every few milliseconds, from behind r1. A
// router itself may send the beginning of its own connection and a later reset to
// different next hops. Then a server keeps a connection that the router has moved, and
// does not answer when the port is reused.
func (c *controlPlane) connect(t *testing.T) *site.Client {
	t.Helper()
	return site.Connect(t, &probe.Prober{
		Target: net.JoinHostPort(site.VIP4, fmt.Sprint(apiPort)), Dial: c.Node("client").DialContext,
		Interval: 2 * time.Millisecond, // so that some reach each master before the router has acted
	})
}

// makes waits until the client has made that many more good connections in a row.
func makes(t *testing.T, client *site.Client, n int) {
	t.Helper()
	from := time.Now()
	site.Eventually(t, site.Soon, func() error {
		if failed := client.Failed(from); len(failed) > 0 {
			from = failed[len(failed)-1].At.Add(1)
		}
		good := len(client.Since(from))
		return site.ErrorIf(good < n, "%d connections of %d", good, n)
	})
}

// hops captures the first packets of connections to the apiservers' port that masters
// forward through r1.
type hops struct {
	own map[netip.Addr]site.Master // the masters' tunnel addresses

	mu     sync.Mutex
	sent   int
	passed map[string][]pass // by the packet
	odd    []error
}

// pass is a packet forwarded from one master to another.
type pass struct{ src, dst site.Master }

// listen captures until the end of the test.
func (c *controlPlane) listen(t *testing.T) *hops {
	t.Helper()
	h := &hops{own: make(map[netip.Addr]site.Master), passed: make(map[string][]pass)}
	r := c.Routers[0]
	for _, m := range c.Masters {
		h.own[m.Hop(r, site.VIP4)] = m
	}
	for _, m := range c.Masters {
		ear := site.Get[*tap.Tap](t)(tap.Open(r.Node, fmt.Sprintf("eth%d", m.Number), passedOn(), func(f tap.Frame) { h.take(m, f) }))
		t.Cleanup(func() { site.Must(t, ear.Close()) })
	}
	return h
}

// take records a VXLAN packet forwarded by a master.
func (h *hops) take(m site.Master, f tap.Frame) {
	const ethernet, ip, udp, vxlan = 14, 20, 8, 8
	const outer, inner = ethernet, ethernet + ip + udp + vxlan + ethernet
	const syn, synAck = 0x02, 0x12
	if f.Outgoing || len(f.Data) < inner+ip+ip || f.Data[inner+9] != unix.IPPROTO_TCP {
		return
	}
	tcp := f.Data[inner+ip:]
	if tcp[13]&synAck != syn || binary.BigEndian.Uint16(tcp[2:]) != apiPort {
		return
	}
	dst := netip.AddrFrom4([4]byte(f.Data[outer+16:]))
	packet := string(f.Data[inner+4:inner+6]) + string(tcp[:8]) // its IP identification, ports and sequence number
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sent++
	next, ok := h.own[dst]
	if !ok {
		h.odd = append(h.odd, fmt.Errorf("%s forwarded a connection to %s, which is no master's own address", m, dst))
	}
	h.passed[packet] = append(h.passed[packet], pass{m, next}) // not in order: each link has its own capture
}

func (h *hops) mark() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sent = 0
}

// check reports connections that reached a master twice, or a wrong one. It fails if there were
// none.
func (h *hops) check(t *testing.T) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sent == 0 {
		t.Error("no connection was forwarded")
	}
	for _, passes := range h.passed {
		came := make(map[site.Master]int) // how often it reached a master after the first time
		first := 0
		for _, p := range passes {
			came[p.dst]++
			if !slices.ContainsFunc(passes, func(before pass) bool { return before.dst == p.src }) {
				first++
			}
			if came[p.dst] > 1 {
				first = -1
				break
			}
		}
		if first != 1 {
			h.odd = append(h.odd, fmt.Errorf("a connection came to a master twice: %v", passes))
		}
	}
	clear(h.passed)
	if err := errors.Join(h.odd...); err != nil {
		t.Error(err)
	}
	h.odd = nil
}

// passedOn lets pass the packets that members forward to each other.
func passedOn() []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: 12, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.ETH_P_IP, SkipTrue: 5},
		bpf.LoadAbsolute{Off: 23, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_UDP, SkipTrue: 3},
		bpf.LoadAbsolute{Off: 36, Size: 2}, // packets in a lab have no IP options
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 7947, SkipTrue: 1},
		bpf.RetConstant{Val: 128},
		bpf.RetConstant{Val: 0},
	}
}

// testEstablished makes clients watch namespaces of real apiservers through the VIP,
// while another master starts to announce it and a third is drained. No watch ends,
// although routers move many to another master. A drain ends when the last watch does.
func (c *controlPlane) testEstablished(t *testing.T) {
	comes, goes := c.Masters[2], c.Masters[0]
	site.MustRun(t, comes.Speaker(), "herald", "drain")
	c.Announces(t, c.Others(comes)...)
	n := site.Scale(1000, 150)
	w := c.watch(t, n)
	w.see(t, "all-begin")
	site.MustRun(t, comes.Speaker(), "herald", "undrain")
	c.Announces(t, c.Masters...)
	w.see(t, "another-announces")

	drained := make(chan error, 1)
	go func() {
		_, err := goes.Speaker().Run(t.Context(), "herald", "drain", "--deadline", "1h")
		drained <- err
	}()
	site.Eventually(t, site.Soon, func() error {
		return errors.Join(site.LeadsTo(c.Routers[0], c.Others(goes)...), site.LeadsTo(c.Routers[1], c.Others(goes)...))
	})
	w.see(t, "one-is-drained")
	passed, answered := counts(t, c.Cluster)
	if passed == 0 {
		t.Error("no packet was forwarded: the test does not prove that routers move connections")
	}
	select {
	case err := <-drained:
		t.Errorf("the drain ended with connections left, %v", err)
	default:
	}
	w.end()
	site.Must(t, <-drained) // long before its deadline
	t.Logf("%d watches: none ended; %d packets forwarded, %d answered", n, passed, answered)
	site.MustRun(t, goes.Speaker(), "herald", "undrain")
	c.Announces(t, c.Masters...)
	acquainted(t, c.Cluster)
}

// counts returns how many packets the masters have forwarded, and answered without an owner.
func counts(t *testing.T, c *site.Cluster) (passed, answered uint64) {
	t.Helper()
	for _, m := range c.Masters {
		status := site.Get[admin.Status](t)(m.Status(t))
		if p := status.Passing; p != nil {
			passed, answered = passed+p.Passed, answered+p.Answered
		}
	}
	return passed, answered
}

// watches are watches of namespaces.
type watches struct {
	*controlPlane
	admin *tls.Config
	end   func()

	mu   sync.Mutex
	lost []error
	seen map[string]int // number of watches that have seen the namespace
	n    int
}

// watch begins n watches from behind r1.
func (c *controlPlane) watch(t *testing.T, n int) *watches {
	t.Helper()
	w := &watches{controlPlane: c, admin: c.pki.Client(t), seen: make(map[string]int), n: n}
	w.admin.Certificates = []tls.Certificate{c.pki.Pair(t, "admin")}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	w.end = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(w.end)
	for range n {
		running.Go(func() {
			err := w.follow(ctx)
			w.mu.Lock()
			defer w.mu.Unlock()
			if ctx.Err() == nil {
				w.lost = append(w.lost, err)
			}
		})
	}
	return w
}

// follow runs one watch on its own connection, until it ends.
func (w *watches) follow(ctx context.Context) error {
	get, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+net.JoinHostPort(site.VIP4, fmt.Sprint(apiPort))+"/api/v1/namespaces?watch=true", nil)
	if err != nil {
		return err
	}
	answer, err := site.HTTPClient(w.Node("client"), w.admin).Transport.RoundTrip(get)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	for events := json.NewDecoder(answer.Body); ; {
		var event struct {
			Type   string
			Object struct{ Metadata struct{ Name string } }
		}
		if err := events.Decode(&event); err != nil {
			return err
		}
		if event.Type == "ADDED" {
			w.mu.Lock()
			w.seen[event.Object.Metadata.Name]++
			w.mu.Unlock()
		}
	}
}

// see creates a namespace at each apiserver for all watches to see, and then another:
// the answers to the first have reached the routers' current next hops by then.
func (w *watches) see(t *testing.T, name string) {
	t.Helper()
	for _, name := range []string{name, name + "-again"} {
		for _, m := range w.Masters {
			at := net.JoinHostPort(m.Hop(w.Routers[0], site.VIP4).String(), fmt.Sprint(apiPort))
			answer, err := site.HTTPClient(w.Node("client"), w.admin).Post("https://"+at+"/api/v1/namespaces", "application/json",
				strings.NewReader(fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, name)))
			site.Must(t, err)
			site.Must(t, answer.Body.Close())
			if answer.StatusCode != http.StatusCreated {
				t.Fatalf("%s answers %s", m, answer.Status)
			}
		}
		site.Eventually(t, site.Soon, func() error {
			w.mu.Lock()
			defer w.mu.Unlock()
			return site.ErrorIf(w.seen[name] < w.n, "%d of %d watches have seen %s; %v have ended", w.seen[name], w.n, name, w.lost)
		})
	}
}
