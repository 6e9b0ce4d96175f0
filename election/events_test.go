package election

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/testenv/fabric"
)

// handlerCalls is a handler that records its calls.
type handlerCalls struct {
	Handler
	calls []string
}

func (r *handlerCalls) Granted() { r.calls = append(r.calls, "granted") }

func (r *handlerCalls) Transfer(all []lease.Transfer) {
	for _, e := range all {
		r.calls = append(r.calls, "transfer "+e.Lease+" to "+e.To)
	}
}

func (r *handlerCalls) Lost(all []lease.Lost) {
	for _, e := range all {
		r.calls = append(r.calls, "lost "+e.Lease)
	}
}

func TestEventQueueMergesEvents(t *testing.T) {
	granted := func(name string) lease.Event { return lease.Granted{Lease: name} }
	for name, test := range map[string]struct {
		events []lease.Event
		drop   string
		want   []string
	}{
		"no events":          {},
		"grant":              {events: []lease.Event{granted("a")}, want: []string{"granted"}},
		"renewals merge":     {events: []lease.Event{granted("a"), granted("a"), granted("b")}, want: []string{"granted"}},
		"loss ends transfer": {events: []lease.Event{lease.Transfer{Lease: "a", To: "m2"}, lease.Lost{Lease: "a"}}, want: []string{"lost a"}},
		"loss before grant":  {events: []lease.Event{granted("a"), lease.Lost{Lease: "a"}}, want: []string{"lost a", "granted"}},
		"order of leases":    {events: []lease.Event{lease.Transfer{Lease: "b", To: "m2"}, lease.Transfer{Lease: "a", To: "m3"}}, want: []string{"transfer a to m3", "transfer b to m2"}},
		"stepped down":       {events: []lease.Event{lease.Transfer{Lease: "a", To: "m2"}}, drop: "a"},
	} {
		t.Run(name, func(t *testing.T) {
			q, r := newEventQueue(), new(handlerCalls)
			q.add(test.events)
			q.drop(test.drop)
			q.deliver(r, func() {})
			if diff := cmp.Diff(test.want, r.calls); diff != "" {
				t.Fatal(diff)
			}
		})
	}
}

// TestNothingIsSentBeforeALossIsKnown checks that messages after a loss wait until the handler has processed the loss.
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
		first.part(f, true, c.others(first)...)
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
