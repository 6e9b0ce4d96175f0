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
			b.forgotten(t, "w2")
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
				if err == nil && !regexp.MustCompile(c.says).MatchString(text) {
					err = fmt.Errorf("the status does not match %q:\n%s", c.says, text)
				}
				return err
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

// forgotten removes the kernel state that a killed Herald left on a node.
func (b *balanced) forgotten(t *testing.T, node string) {
	t.Helper()
	site.MustRun(t, b.Node(node), "nft", "add table inet herald_balancer; delete table inet herald_balancer")
}
