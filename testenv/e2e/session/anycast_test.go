//go:build e2e

package session

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/internal/wake"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/clab"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/e2e/witness"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/routes"
)

const anycastGuide = "../../../docs/anycast.md"

// anycastVIPs are the VIPs of the guide.
var anycastVIPs = []string{"10.99.0.53", "fd00:99::53"}

// anycastSite is the lab of e2e-anycast.clab.yml, set up by the guide, with a client
// that asks all the time.
type anycastSite struct {
	*lab.Lab
	dir     string // of the configurations
	routes  *site.RouteWatcher
	witness *witness.Witness

	mu    sync.Mutex
	asked []*question // in order
}

// question is a question of the client.
type question struct {
	at, ended    time.Time // ended is zero while it waits
	network, vip string
	server       string // the server that answered
	err          error
}

func (q question) String() string {
	return fmt.Sprintf("%s %s from %s to %s: %v", q.network, q.vip, q.at.Format("05.000"), q.ended.Format("05.000"), q.err)
}

func newAnycastSite(t *testing.T) *anycastSite {
	t.Helper()
	block := func(heading, language string) string {
		t.Helper()
		blocks := site.Blocks(t, anycastGuide, heading, language)
		if len(blocks) == 0 {
			t.Fatalf("the guide has no %s below %q", language, heading)
		}
		return blocks[0]
	}
	sed := exec.CommandContext(t.Context(), "sh", "-euc", block("The router", "sh"))
	sed.Dir = "../../.."
	router := site.Get[[]byte](t)(sed.Output())
	slow := strings.NewReplacer("interval 50", "interval 300", "bfd: {}", "bfd: {interval: 300ms}") // for a busy machine
	a := &anycastSite{dir: t.TempDir()}
	herald := slow.Replace(block("Herald", "yaml"))
	site.Files{
		"frr.conf": slow.Replace(string(router)), "anycast.conf": block("unbound", "unbound"),
		"dns1/herald.yaml": herald, "dns2/herald.yaml": herald,
	}.Write(t, a.dir)
	images := maps.Clone(site.Images())
	images["unbound"] = unbound
	a.Lab = site.StartTopology(t, "../../topologies/e2e-anycast.clab.yml", map[string]string{"ANYCAST_DIR": a.dir}, images)
	a.routes, a.witness = site.WatchRoutes(t, a.Node("r1")), site.StartWitness(t)
	site.Boot(t, a.Lab, "r1", "dns1-speaker", "dns2-speaker", "dns1-unbound", "dns2-unbound")
	return a
}

// unbound is Debian's, as its unit starts it.
func unbound(clab.Node) (lab.Program, error) {
	return lab.Program{
		Prepare: [][]string{{"/usr/libexec/unbound-helper", "root_trust_anchor_update"}},
		Daemons: []lab.Daemon{{Name: "unbound", Argv: []string{"/usr/sbin/unbound", "-d", "-p"}}},
	}, nil
}

// leadsTo waits until the router has routes to both VIPs by these servers, and returns
// when the last one became so.
func (a *anycastSite) leadsTo(t *testing.T, servers ...string) (since time.Time) {
	t.Helper()
	for _, vip := range anycastVIPs {
		var want []netip.Addr
		for _, s := range servers {
			number := strings.TrimPrefix(s, "dns")
			want = append(want, site.IP(map[string]string{"ipv4": "10.0.1.", "ipv6": "fd00:1::"}[site.Family(vip)]+number))
		}
		site.Eventually(t, site.Soon, func() error {
			hops, err := site.Hops(a.Node("r1"), vip)
			return site.Check(err, !slices.Equal(hops, want), "r1 has %s by %v, want %v", vip, hops, want)
		})
		if steps := a.routes.Steps(vip); len(steps) > 0 && steps[len(steps)-1].At.After(since) {
			since = steps[len(steps)-1].At
		}
	}
	return since
}

// ask asks each VIP by UDP and TCP for the server's name, every few milliseconds until
// the end of the test, each time from another port.
func (a *anycastSite) ask(ctx context.Context) {
	const pause = 10 * time.Millisecond
	var asking sync.WaitGroup
	defer asking.Wait()
	for wake.Pause(ctx, pause) {
		for _, vip := range anycastVIPs {
			for _, network := range []string{"udp", "tcp"} {
				q := &question{at: time.Now(), network: network, vip: vip}
				a.mu.Lock()
				a.asked = append(a.asked, q)
				a.mu.Unlock()
				asking.Go(func() {
					server, err := identity(ctx, a.Node("client"), network, vip)
					a.mu.Lock()
					defer a.mu.Unlock()
					q.server, q.err, q.ended = server, err, time.Now()
				})
			}
		}
	}
}

// identity asks a name server for its name.
func identity(ctx context.Context, from *lab.Node, network, server string) (string, error) {
	const timeout = time.Second
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := from.DialContext(ctx, network, net.JoinHostPort(server, "53"))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	query := new(dns.Msg).SetQuestion("id.server.", dns.TypeTXT)
	query.Question[0].Qclass = dns.ClassCHAOS
	reply, _, err := (&dns.Client{Timeout: timeout}).ExchangeWithConnContext(ctx, query, &dns.Conn{Conn: conn})
	if err != nil {
		return "", err
	}
	for _, r := range reply.Answer {
		if txt, ok := r.(*dns.TXT); ok {
			return strings.Join(txt.Txt, ""), nil
		}
	}
	return "", fmt.Errorf("%s answered without a name:\n%v", server, reply)
}

// since returns the questions asked after an instant, including enough from now on,
// and the failed ones.
func (a *anycastSite) since(t *testing.T, at time.Time) (all, failed []question) {
	t.Helper()
	const enough = 200
	now := time.Now()
	site.Eventually(t, site.Soon, func() error {
		a.mu.Lock()
		defer a.mu.Unlock()
		all, failed = nil, nil
		more := 0
		for _, q := range a.asked {
			if q.ended.IsZero() {
				break
			}
			if q.at.Before(at) {
				continue
			}
			all = append(all, *q)
			if q.err != nil {
				failed = append(failed, *q)
			}
			if q.at.After(now) {
				more++
			}
		}
		return site.ErrorIf(more < enough, "%d questions were asked, want %d", more, enough)
	})
	return all, failed
}

// moved reports whether the router changed the route to the VIP during a question over
// TCP. Then the other server may get its remaining packets and resets the unknown
// connection, which is unavoidable.
func (a *anycastSite) moved(q question) bool {
	changes := slices.DeleteFunc(a.routes.Since(), func(c routes.Change) bool { return c.Prefix != site.HostPrefix(q.vip) })
	return q.network == "tcp" && site.Cuts(changes, q.at, q.ended)
}

// answered checks that all questions since an instant were answered, except moved
// ones, and since another instant by exactly these servers.
func (a *anycastSite) answered(t *testing.T, what string, since, settled time.Time, servers ...string) {
	t.Helper()
	all, failed := a.since(t, since)
	lost := slices.DeleteFunc(slices.Clone(failed), a.moved)
	t.Logf("%s: %d of %d questions were lost, and %d over TCP were reset by a move", what, len(lost), len(all), len(failed)-len(lost))
	const most = 5 // questions in progress when the routes of one family change, and of the other
	if len(lost) > 0 || len(failed)-len(lost) > most {
		site.FailTiming(t, a.witness.Starved(since), "%s: lost %v of the failed questions %v", what, lost, failed)
	}
	by := make(map[string]map[string]bool)
	for _, q := range all {
		if q.err == nil && q.at.After(settled) {
			way := q.network + " " + q.vip
			if by[way] == nil {
				by[way] = make(map[string]bool)
			}
			by[way][q.server] = true
		}
	}
	for way, found := range by {
		if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, servers) {
			t.Errorf("%s: %s was answered by %v, want %v", what, way, got, servers)
		}
	}
	if len(by) != 4 {
		t.Errorf("%s: answers came only by %v", what, slices.Sorted(maps.Keys(by)))
	}
}

// leaves leaves the router with only the other server by a change that may cost
// questions, but none asked after the routes are gone.
func (a *anycastSite) leaves(t *testing.T, what, other string, change func()) {
	t.Helper()
	a.routes.Mark()
	at := time.Now()
	change()
	gone := a.leadsTo(t, other)
	a.answered(t, what+", once it is heard of", gone, gone, other)
	all, failed := a.since(t, at)
	t.Logf("%s: the routes were gone after %v; %d of %d questions were lost", what, gone.Sub(at).Round(time.Millisecond), len(failed), len(all))
}

// planned makes a change that costs no question, after which the router has routes to these
// servers.
func (a *anycastSite) planned(t *testing.T, what string, change func(), servers ...string) {
	t.Helper()
	a.routes.Mark()
	at := time.Now()
	change()
	a.answered(t, what, at, a.leadsTo(t, servers...), servers...)
}

// TestAnycastDNS runs the two name servers of docs/anycast.md, takes them away one
// after the other, and counts the lost questions.
func TestAnycastDNS(t *testing.T) {
	a := newAnycastSite(t)
	unbound1, unbound2, speaker2 := a.Node("dns1-unbound"), a.Node("dns2-unbound"), a.Node("dns2-speaker")
	both := []string{"dns1", "dns2"}
	a.leadsTo(t, both...)
	site.Meanwhile(t, a.ask)
	a.planned(t, "nothing", func() {
		for line := range strings.Lines(site.Blocks(t, anycastGuide, "See it work", "sh")[0]) {
			node := a.Node("client")
			if strings.HasPrefix(line, "herald ") {
				node = speaker2
			}
			if out := site.MustRun(t, node, "sh", "-euc", line); strings.TrimSpace(out) == "" {
				t.Errorf("%s has no effect", line)
			}
		}
	}, both...)

	a.leaves(t, "unbound killed", "dns2", func() { site.Kill(t, unbound1) })
	a.planned(t, "unbound back", func() { site.Start(t, unbound1) }, both...)

	a.leaves(t, "unbound frozen", "dns1", func() { site.Freeze(t, unbound2) })
	a.planned(t, "unbound thawed", func() { site.Thaw(t, unbound2) }, both...)

	flag := filepath.Join(a.dir, "dns1", "maintenance")
	a.leaves(t, "maintenance", "dns2", func() { site.Must(t, os.WriteFile(flag, nil, 0o644)) })
	a.planned(t, "maintenance over", func() { site.Must(t, os.Remove(flag)) }, both...)

	// With onFailure: demote the address stays, and with it the answers.
	file := filepath.Join(a.dir, "dns2", "herald.yaml")
	demote := strings.Replace(site.ReadFile(t, file), "  announce: bgp\n", "  announce: bgp\n  onFailure: demote\n", 1)
	site.Must(t, os.WriteFile(file, []byte(demote), 0o644))
	site.Must(t, speaker2.Daemon("herald").Signal(unix.SIGHUP))
	site.Speaker{Node: speaker2}.Shows(t, func(s admin.Status) error {
		return site.ErrorIf(s.Config.Generation < 2, "the configuration is %+v", s.Config)
	})
	flag = filepath.Join(a.dir, "dns2", "maintenance")
	a.planned(t, "demoted for maintenance", func() { site.Must(t, os.WriteFile(flag, nil, 0o644)) }, "dns1")
	a.planned(t, "maintenance over", func() { site.Must(t, os.Remove(flag)) }, both...)

	a.planned(t, "drain", func() { site.MustRun(t, speaker2, "herald", "drain") }, "dns1")
	a.planned(t, "upgrade", func() {
		site.Must(t, site.Stop(t, unbound2))
		site.Start(t, unbound2)
	}, "dns1")
	a.planned(t, "undrain", func() { site.MustRun(t, speaker2, "herald", "undrain") }, both...)
}
