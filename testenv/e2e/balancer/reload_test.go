//go:build e2e

package balancer

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/e2e/site"
)

// testEstablished keeps 5,000 connections through all events of their node's Herald,
// and through a change to an external load balancer and back.
func (b *balanced) testEstablished(t *testing.T) {
	b.follow(t, threeMasters()...)
	established := b.hold(t, "w1", localApp, 5000)
	established.even(t, threeMasters()...)
	w1 := b.Node("w1-speaker")
	load := b.load(t, "w1", localApp, nil)
	began := time.Now()
	for _, end := range []struct {
		name string
		act  func() error
	}{
		{"stopped", func() error { return site.Stop(t, w1) }},
		{"killed", w1.Kill},
	} {
		site.Must(t, end.act())
		load.GoesOn(t, 50) // without Herald, too
		established.intact(t)
		site.Start(t, w1)
		b.serve(t, "w1", "app", threeMasters()...)
		load.GoesOn(t, 50)
		established.intact(t)
		load.None(t, began)
	}

	const external = "loadBalancer: {type: external}\n"
	b.rewrite(t, "w1", func(s string) string { return s + external })
	refused(t, b.Node("w1"), localApp)
	established.intact(t)
	b.rewrite(t, "w1", func(s string) string { return strings.Replace(s, external, "", 1) })
	b.serve(t, "w1", "app", threeMasters()...)
	established.intact(t)
	b.hold(t, "w1", localApp, 300).among(t, threeMasters()...)

	// A change of the method for new connections does not affect them either.
	b.rewrite(t, "w1", func(s string) string {
		return strings.ReplaceAll(s, "- name: app\n", "- name: app\n  method: source-hash\n")
	})
	site.Eventually(t, site.Soon, func() error {
		h := b.hold(t, "w1", localApp, 20)
		defer h.close()
		return site.ErrorIf(len(h.shares()) != 1, "by the source's hash connections went to %v, want a single master", h.shares())
	})
	b.rewrite(t, "w1", func(s string) string { return strings.Replace(s, "  method: source-hash\n", "", 1) })
	established.intact(t)
	b.serve(t, "w1", "app", threeMasters()...)
}

// healthz returns the answer of a host's Herald to a query from a node about a name.
func (b *balanced) healthz(t *testing.T, node, host, name string) (status int, text string) {
	t.Helper()
	status, text = site.Fetch(t, b.Node(node), "http://"+host+":9474/healthz/"+name)
	return status, strings.TrimSpace(text)
}

// answers waits until a host's Herald answers the wanted status for each name.
func (b *balanced) answers(t *testing.T, host string, want map[string]int) {
	t.Helper()
	site.Eventually(t, site.Soon, func() error {
		for name, status := range want {
			got, text := b.healthz(t, "b1", host, name)
			if got != status || status == http.StatusServiceUnavailable && !strings.Contains(text, " ") {
				return fmt.Errorf("%s answers %d %q about %s, want %d", host, got, text, name, status)
			}
		}
		return nil
	})
}

// testExternal leaves balancing to a HAProxy, which asks Herald for eligible servers.
func (b *balanced) testExternal(t *testing.T) {
	const external = "loadBalancer: {type: external}\n"
	for _, m := range threeMasters() {
		b.rewrite(t, m, func(s string) string { return s + external })
	}
	b.answers(t, "10.5.0.1", map[string]int{"apiserver": 200, "registry": 200, "app": 200, "control-plane": 200, "nobody": 404})
	site.Boot(t, b.Lab, "b1-haproxy")
	haproxy := b.load(t, "w2", "10.5.0.9:6443", b.pki.Client(t))

	site.Kill(t, b.Node("m1-apiserver"))
	b.answers(t, "10.5.0.1", map[string]int{"apiserver": 503, "registry": 200, "app": 200, "control-plane": 503})
	b.answers(t, "10.5.0.2", map[string]int{"apiserver": 200})
	site.Start(t, b.Node("m1-apiserver"))
	site.Kill(t, b.Node("m1-registry"))
	b.answers(t, "10.5.0.1", map[string]int{"apiserver": 200, "registry": 503, "app": 200, "control-plane": 503})
	site.Start(t, b.Node("m1-registry"))
	b.answers(t, "10.5.0.1", map[string]int{"apiserver": 200, "registry": 200, "control-plane": 200})
	haproxy.GoesOn(t, 50) // HAProxy has asked several times meanwhile

	// A drain is announced to HAProxy in time: no connection fails.
	drained := time.Now()
	b.herald(t, "m2", "drain")
	b.answers(t, "10.5.0.2", map[string]int{"apiserver": 503, "registry": 503, "control-plane": 503})
	haproxy.GoesOn(t, 50)
	b.herald(t, "m2", "undrain")
	b.answers(t, "10.5.0.2", map[string]int{"apiserver": 200, "registry": 200, "control-plane": 200})
	haproxy.GoesOn(t, 50)
	haproxy.None(t, drained)

	for _, m := range threeMasters() {
		b.rewrite(t, m, func(s string) string { return strings.Replace(s, external, "", 1) })
	}
	b.follow(t, threeMasters()...)
}

// staticBalancer accepts connections from other hosts too, and checks its backends itself.
const staticBalancer = `- name: static
  listen: [{address: "[fd00:5::22]:7001"}]
  backends: {static: {addresses: ["[fd00:5::1]:7000", "[fd00:5::2]:7000", "[fd00:5::3]:7000"]}}
  check: {http: {url: "http://backend/readyz"}}
`

// testStatic balances a list of backends outside the election, for clients of this
// node and of others, over IPv6.
func (b *balanced) testStatic(t *testing.T) {
	const address = "[fd00:5::22]:7001"
	backends := []string{"[fd00:5::1]:7000", "[fd00:5::2]:7000", "[fd00:5::3]:7000"}
	b.rewrite(t, "w2", func(s string) string { return strings.Replace(s, "balancers:\n", "balancers:\n"+staticBalancer, 1) })
	b.serve(t, "w2", "static", backends...)
	for _, from := range []string{"w1", "w2"} {
		b.hold(t, from, address, 300).among(t, threeMasters()...)
	}
	load := b.load(t, "w1", address, nil)
	site.Freeze(t, b.Node("m2-app"))
	fault := time.Now()
	defer site.Thaw(t, b.Node("m2-app"))
	out := b.serve(t, "w2", "static", backends[0], backends[2])
	share(t, load, fault, out)
	site.Thaw(t, b.Node("m2-app"))
	b.serve(t, "w2", "static", backends...)
	b.rewrite(t, "w2", func(s string) string { return strings.Replace(s, staticBalancer, "", 1) })
	refused(t, b.Node("w1"), address)
}

// testBadInput starts a worker's Herald in situations that it cannot handle: its
// status gives the reason, its clients are refused immediately, and other nodes are
// unaffected.
func (b *balanced) testBadInput(t *testing.T) {
	masters := threeMasters()
	good := site.ReadFile(t, b.conf("w2"))
	keyFile := filepath.Join(b.dir, "w2", "gossip.key")
	key := site.ReadFile(t, keyFile)
	b.follow(t, masters...)
	load := b.load(t, "w1", localApp, nil)
	began := time.Now()
	for _, c := range []struct {
		name  string
		spoil func(t *testing.T)
		start func(t *testing.T)
		says  string // in the status, a regular expression
		works string // the address that still works
	}{
		{
			name:  "wrong key",
			spoil: func(t *testing.T) { site.Must(t, os.WriteFile(keyFile, []byte("AAECAwQFBgcICQoLDA0ODw==\n"), 0o600)) },
			says:  "m1.*",
		},
		{
			name: "unreachable, but remembered",
			spoil: func(t *testing.T) {
				b.rewrite(t, "w2", func(s string) string { return strings.ReplaceAll(s, `"10.5.0.`, `"10.5.0.10`) })
			},
			says: "m1.*", works: localRegistry,
		},
		{
			name: "unreachable",
			spoil: func(t *testing.T) {
				b.rewrite(t, "w2", func(s string) string { return strings.ReplaceAll(s, `"10.5.0.`, `"10.5.0.10`) })
				site.MustRun(t, b.Node("w2-speaker"), "rm", "/run/herald/herald.members")
			},
			says: "m1.*",
		},
		{
			name: "port in use",
			spoil: func(t *testing.T) {
				b.rewrite(t, "w2", func(s string) string { return strings.ReplaceAll(s, "  backends:", "  mode: proxy\n  backends:") })
				b.listen(t, "w2", localApp)
			},
			says: "cannot listen at 127.0.0.1:7001: another program does: stop it", works: localRegistry,
		},
		{
			name:  "no rights",
			start: func(t *testing.T) { site.StartConfined(t, b.Node("w2-speaker"), nil) },
			says:  "CAP_NET_ADMIN",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			site.Kill(t, b.Node("w2-speaker"))
			for _, m := range masters { // or a master would report the others at once
				b.speaker(m).Shows(t, func(s admin.Status) error {
					return site.ErrorIf(slices.ContainsFunc(s.Election.Members, func(m lease.Member) bool { return m.Name == "w2" && m.Alive }),
						"w2 is still alive to %s", m)
				})
			}
			site.MustRun(t, b.Node("w2"), "nft", "add table inet herald_balancer; delete table inet herald_balancer") // the killed Herald left it
			if c.spoil != nil {
				c.spoil(t)
			}
			if c.start == nil {
				c.start = func(t *testing.T) {
					site.Boot(t, b.Lab, "w2-speaker")
					t.Cleanup(func() { site.Kill(t, b.Node("w2-speaker")) })
				}
			}
			c.start(t)
			site.Eventually(t, site.Soon, func() error {
				text, err := site.Run(t, b.Node("w2-speaker"), "herald", "status")
				return site.Check(err, !regexp.MustCompile(c.says).MatchString(text), "the status does not match %q:\n%s", c.says, text)
			})
			if c.works == "" {
				refused(t, b.Node("w2"), localApp)
			} else {
				client := b.registryClient("w2", c.works)
				_, err := client.do(t.Context(), http.MethodGet, "http://"+c.works+"/v2/", http.StatusOK, nil, nil)
				site.Must(t, err)
			}
			b.serve(t, "w1", "app", masters...)
			for _, m := range masters {
				b.serve(t, m, "app", masters...)
			}
		})
		site.Must(t, os.WriteFile(b.conf("w2"), []byte(good), 0o600))
		site.Must(t, os.WriteFile(keyFile, []byte(key), 0o600))
	}
	site.Boot(t, b.Lab, "w2-speaker")
	b.follow(t, masters...)
	load.GoesOn(t, 50)
	load.None(t, began)
}

// listen opens a foreign listener at an address of a node.
func (b *balanced) listen(t *testing.T, node, address string) {
	t.Helper()
	site.Must(t, b.Node(node).Do(func() error {
		l, err := net.Listen("tcp", address)
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	}))
}
