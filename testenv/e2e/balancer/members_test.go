//go:build e2e

package balancer

import (
	"fmt"
	"slices"
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
		since, _ := ready.Seen()
		return site.ErrorIf(since.IsZero(), "the apiserver of m4 is not ready")
	})
	for _, m := range three {
		b.rewrite(t, m, join)
	}
	began := time.Now()
	site.Boot(t, b.Lab, "m4-speaker")
	b.follow(t, four...)
	load.GoesOn(t, 50)
	load.None(t, began)

	// A stop is announced: the servers are healthy, but receive no connections any more.
	site.Must(t, site.Stop(t, b.Node("m4-speaker")))
	b.follow(t, three...)
	site.Start(t, b.Node("m4-speaker"))
	b.follow(t, four...)
	load.GoesOn(t, 50)
	load.None(t, began)

	site.Must(t, b.Node("m4").PowerOff())
	b.follow(t, three...)
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

// testDrain drains a master and takes it back: no connection fails, and its connections stay.
func (b *balanced) testDrain(t *testing.T) {
	b.follow(t, threeMasters()...)
	established := b.hold(t, "w1", localApp, 90)
	began := time.Now()
	load := b.load(t, "w1", localApp, nil)
	b.herald(t, "m1", "drain")
	b.follow(t, "m2", "m3")
	b.hold(t, "w2", localApp, 90).among(t, "m2", "m3")
	load.GoesOn(t, 50)
	established.intact(t)
	b.herald(t, "m1", "undrain")
	b.follow(t, threeMasters()...)
	b.hold(t, "w2", localApp, 90).among(t, threeMasters()...)
	load.GoesOn(t, 50)
	load.None(t, began)
	established.intact(t)
}

// holder waits until one of the masters reports that it has the VIP.
func (b *balanced) holder(t *testing.T, masters ...string) (holder string) {
	t.Helper()
	site.Eventually(t, site.Soon, func() error {
		var holders []string
		for _, m := range masters {
			status, err := b.status(t, m)
			if err != nil {
				return err
			}
			for _, v := range status.VIPs {
				if v.Stage == "announced" {
					holders = append(holders, m)
				}
			}
		}
		if len(holders) != 1 {
			return fmt.Errorf("%v hold the VIP, want a single holder", holders)
		}
		holder = holders[0]
		return nil
	})
	return holder
}

// testVIP spreads clients of the VIP over all masters, although a single one holds it:
// a client without Herald, and each master. Then the holder loses power.
func (b *balanced) testVIP(t *testing.T) {
	masters := threeMasters()
	for _, m := range masters {
		b.serve(t, m, "app", masters...)
	}
	const app = sharedVIP + ":7001"
	holder := b.holder(t, masters...)
	b.hold(t, "b1", app, 3000).even(t, masters...)
	for _, m := range masters {
		b.hold(t, m, app, 300).among(t, masters...)
		b.hold(t, m, localApp, 300).among(t, masters...)
	}
	registry := b.registryClient("b1", sharedVIP+":5000")
	for range 3 { // once from each
		_, err := registry.do(t.Context(), "GET", "http://"+registry.address+"/v2/", 200, nil, nil)
		site.Must(t, err)
	}

	load := b.load(t, "b1", app, nil)
	site.Must(t, b.Node(holder).PowerOff())
	left := others(holder)
	b.holder(t, left...)
	for _, m := range left {
		b.serve(t, m, "app", left...)
	}
	moved := time.Now()
	load.GoesOn(t, 50)
	load.None(t, moved)
	b.hold(t, "b1", app, 300).among(t, left...)
	for _, m := range left {
		b.hold(t, m, app, 300).among(t, left...)
	}
	site.PowerOn(t, b.Node(holder))
	for _, m := range slices.Sorted(slices.Values(masters)) {
		b.serve(t, m, "apiserver", masters...)
	}
}
