//go:build e2e

package balancer

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/herald-vip/herald/testenv/e2e/site"
)

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
	b.pullAll(t, "b1", sharedVIP)

	load := b.load(t, "b1", app, nil)
	lost := time.Now()
	site.Must(t, b.Node(holder).PowerOff())
	left := others(holder)
	next := b.holder(t, left...)
	t.Logf("%s had the VIP and lost power, %s has it after at most %v", holder, next, time.Since(lost).Round(time.Millisecond))
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

// pullAll lists the registries' contents through the VIP, once from each registry.
func (b *balanced) pullAll(t *testing.T, node, vip string) {
	t.Helper()
	client := b.registryClient(node, vip+":5000")
	for range 3 {
		_, err := client.do(t.Context(), "GET", "http://"+client.address+"/v2/", 200, nil, nil)
		site.Must(t, err)
	}
}
