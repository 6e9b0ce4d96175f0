//go:build e2e

package balancer

import (
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/testenv/e2e/site"
)

// fourth is what m4 is among the members of an election.
const fourth = `, m4: "10.5.0.4:7946"`

// testMembers has a master join that only the masters are told of, leave, come back
// and die for good. Nobody touches the workers, which follow.
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

	// When it stops it says so: its servers are well, and nobody connects to them any more.
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
	b.known(t, "w2", "app", three...) // which was told to forget sooner
	for _, m := range three {
		b.rewrite(t, m, leave)
	}
	b.follow(t, three...)
}

// well is when the Herald of a node found that what it serves is well.
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

// testDrain drains a master and takes it back: no connection fails, and those that it
// has stay.
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
