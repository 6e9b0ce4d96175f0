//go:build e2e

package balancer

import (
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/testenv/e2e/site"
)

// fourth is m4's entry among the members of an election.
const fourth = `, m4: "10.5.0.4:7946"`

// testMembers adds a master that only the masters' files name. It leaves, comes back
// and dies for good. The workers follow without being changed.
func (b *balanced) testMembers(t *testing.T) {
	join := func(s string) string {
		return strings.Replace(s, `m3: "10.5.0.3:7946"`, `m3: "10.5.0.3:7946"`+fourth, 1)
	}
	leave := func(s string) string { return strings.Replace(s, fourth, "", 1) }
	four := []string{"m1", "m2", "m3", "m4"}
	three := four[:3]
	load := b.load(t, "w1", localApp, nil)

	for _, part := range []string{"apiserver", "registry", "app"} {
		site.Boot(t, b.Lab, "m4-"+part)
	}
	ready := site.ObserveReadiness(t, b.Node("m4"), b.pki.Client(t))
	site.Eventually(t, site.Soon, func() error {
		since, _, _ := ready.Seen()
		return site.ErrorIf(since.IsZero(), "the apiserver of m4 is not ready")
	})
	for _, m := range three {
		b.rewrite(t, m, join)
	}
	began := time.Now()
	site.Boot(t, b.Lab, "m4-speaker")
	b.follow(t, four...)
	b.followed(t, b.well(t, "m4"), "m4 has joined, and found that it is well", four...)
	load.GoesOn(t, 50)
	load.None(t, began)

	// A stop is announced: the servers are healthy, but receive no connections any more.
	stopped := time.Now()
	site.Must(t, site.Stop(t, b.Node("m4-speaker")))
	b.followed(t, stopped, "m4 stopped", three...)
	site.Start(t, b.Node("m4-speaker"))
	b.follow(t, four...)
	load.GoesOn(t, 50)
	load.None(t, began)

	died := time.Now()
	site.Must(t, b.Node("m4").PowerOff())
	b.followed(t, died, "m4 died", three...)
	out := time.Now()
	load.GoesOn(t, 50)
	load.None(t, out)
	b.known(t, "w1", "app", four...)
	b.known(t, "w2", "app", three...) // its file makes it forget sooner
	for _, m := range three {
		b.rewrite(t, m, leave)
	}
	b.follow(t, three...)
}

// well returns when a node's Herald found its own servers healthy.
func (b *balanced) well(t *testing.T, node string) (since time.Time) {
	t.Helper()
	status, err := b.status(t, node)
	site.Must(t, err)
	for _, c := range status.Checks {
		if c.Since.After(since) {
			since = c.Since
		}
	}
	return since
}

// testDrain drains a master and takes it back: no connection fails, and its connections stay.
func (b *balanced) testDrain(t *testing.T) {
	b.follow(t, threeMasters()...)
	established := b.hold(t, "w1", localApp, 90)
	began := time.Now()
	load := b.load(t, "w1", localApp, nil)
	b.herald(t, "m1", "drain")
	undrain := func() { b.herald(t, "m1", "undrain") }
	b.follow(t, "m2", "m3")
	b.hold(t, "w2", localApp, 90).among(t, "m2", "m3")
	load.GoesOn(t, 50)
	established.intact(t)
	undrain()
	b.follow(t, threeMasters()...)
	b.hold(t, "w2", localApp, 90).among(t, threeMasters()...)
	load.GoesOn(t, 50)
	load.None(t, began)
	established.intact(t)
}
