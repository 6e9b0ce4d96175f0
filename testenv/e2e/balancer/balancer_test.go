//go:build e2e

package balancer

import (
	"strings"
	"testing"

	"github.com/herald-vip/herald/testenv/e2e/site"
)

// TestBalancer lets workers reach real apiservers and registries by ports of their own
// loopback, and other clients by a VIP, while backends fail. It uses three masters of
// e2e-balancer.clab.yml, a fourth, and two workers.
func TestBalancer(t *testing.T) {
	b := newBalanced(t)
	masters := threeMasters()
	b.rewrite(t, "w2", func(s string) string { return strings.Replace(s, "- name: app\n", "- name: app\n  forget: 3s\n", 1) })

	// Workers come first: without a running master they must refuse clients.
	site.Boot(t, b.Lab, "e1", "w1-speaker", "w2-speaker")
	b.serve(t, "w1", "app")
	refused(t, b.Node("w1"), localApp)
	for _, m := range masters {
		site.Boot(t, b.Lab, m+"-apiserver", m+"-registry", m+"-app", m+"-speaker")
	}
	b.follow(t, masters...)

	for _, part := range []struct {
		name string
		test func(t *testing.T)
	}{
		{"spread", func(t *testing.T) {
			b.hold(t, "w1", localApp, 3000).even(t, masters...)
			b.counted(t, "w1", "app", 3000, masters...)
		}},
		{"watch", func(t *testing.T) { b.testWatch(t, faults()...) }},
		{"registry", b.testRegistry},
		{"members", b.testMembers},
		{"drain", b.testDrain},
		{"established", b.testEstablished},
		{"external", b.testExternal},
		{"VIP", b.testVIP},
		{"static", b.testStatic},
		{"bad input", b.testBadInput},
		{"proxy", b.testProxy},
	} {
		if !t.Run(part.name, part.test) && t.Context().Err() != nil {
			return
		}
	}
}

// testProxy repeats the main tests in brief with balancers in user space. A change
// from one mode to the other loses no connection.
func (b *balanced) testProxy(t *testing.T) {
	masters := threeMasters()
	b.follow(t, masters...)
	kernel := b.hold(t, "w1", localApp, 300)
	for _, w := range []string{"w1", "w2"} {
		b.rewrite(t, w, func(s string) string {
			s = strings.ReplaceAll(s, "  backends:", "  mode: proxy\n  backends:")
			return strings.Replace(s, `{address: "127.0.0.1:7001"}`, `{address: "127.0.0.1:7001"}, {address: "[::1]:7001"}`, 1)
		})
		b.mode(t, w, "proxy")
	}
	b.follow(t, masters...)
	kernel.intact(t)
	many := b.hold(t, "w1", localApp, 3000)
	many.even(t, masters...)
	many.close() // a proxy has descriptors for some thousands
	b.hold(t, "w1", "[::1]:7001", 300).among(t, masters...)
	t.Run("watch", func(t *testing.T) { b.testWatch(t, faults()[:2]...) })
	t.Run("registry", func(t *testing.T) { b.push(t).othersGo(t) })
	t.Run("drain", b.testDrain)

	proxied := b.hold(t, "w1", localApp, 300)
	b.rewrite(t, "w1", func(s string) string {
		s = strings.ReplaceAll(s, "  mode: proxy\n", "")
		return strings.Replace(s, `, {address: "[::1]:7001"}`, "", 1)
	})
	b.mode(t, "w1", "kernel")
	b.serve(t, "w1", "app", masters...)
	proxied.intact(t)
	kernel.intact(t)
	b.hold(t, "w1", localApp, 300).among(t, masters...)
}

// mode waits until a node's balancers are in that mode.
func (b *balanced) mode(t *testing.T, node, mode string) {
	t.Helper()
	site.Eventually(t, site.Soon, func() error {
		l, err := b.balancer(t, node, "app")
		return site.Check(err, string(l.Mode) != mode, "the mode of %s is %s, want %s", node, l.Mode, mode)
	})
}
