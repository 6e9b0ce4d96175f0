package election

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/testenv/fabric"
)

func TestEventQueueKeepsWhatMatters(t *testing.T) {
	granted := func(name string, epoch uint64) lease.Event { return lease.Granted{Lease: name, Epoch: epoch} }
	for name, test := range map[string]struct {
		events []lease.Event
		drop   string
		want   []string
	}{
		"nothing":              {},
		"a grant":              {events: []lease.Event{granted("a", 1)}, want: []string{"granted a"}},
		"renewals are one":     {events: []lease.Event{granted("a", 1), granted("a", 1), granted("a", 1)}, want: []string{"granted a"}},
		"lost again":           {events: []lease.Event{granted("a", 1), lease.Yield{Lease: "a", To: "m2"}, lease.Lost{Lease: "a"}}, want: []string{"lost a"}},
		"won again":            {events: []lease.Event{lease.Lost{Lease: "a"}, granted("a", 3)}, want: []string{"lost a", "granted a"}},
		"in the leases' order": {events: []lease.Event{granted("b", 1), granted("a", 1), lease.Yield{Lease: "b", To: "m2"}}, want: []string{"granted a", "granted b", "yield b to m2"}},
		"resigned":             {events: []lease.Event{granted("a", 1), lease.Yield{Lease: "a", To: "m2"}, granted("b", 1)}, drop: "a", want: []string{"granted b"}},
	} {
		t.Run(name, func(t *testing.T) {
			n, m := newEventQueue(), &member{held: make(map[string]lease.Granted)}
			n.add(test.events)
			n.drop(test.drop)
			n.deliver(m, func() {})
			if diff := cmp.Diff(test.want, m.told()); diff != "" {
				t.Fatal(diff)
			}
		})
	}
}

// What the machine says after a loss waits until the handler knows of the loss.
func TestNothingIsSentBeforeALossIsKnown(t *testing.T) {
	virtually(t, 3, nil, func(t *testing.T, f *fabric.Fabric, c *cluster) {
		c.start("vip")
		first := c.holder("vip")
		c.met()
		waiting := func() int {
			first.node.mu.Lock()
			defer first.node.mu.Unlock()
			return len(first.node.waiting)
		}
		first.react(func(e lease.Event) {
			if _, ok := e.(lease.Lost); ok {
				time.Sleep(time.Minute)
			}
		})
		for _, m := range c.others(first) {
			f.Part(first.home, m.home, true)
		}
		c.holder("vip", c.others(first)...)
		time.Sleep(30 * time.Second)
		if n := waiting(); n == 0 || n > maxWaiting {
			t.Errorf("%d messages wait", n)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := waiting(); n != 0 {
			t.Errorf("%d messages still wait", n)
		}
	})
}
