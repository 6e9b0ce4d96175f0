package lease_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/election/lease/message"
)

// BenchmarkThousandLeases measures three members with 1,000 leases, all held by one of them, for a third of a Duration:
// each lease is renewed once.
func BenchmarkThousandLeases(b *testing.B) {
	now := time.Unix(1_000_000, 0)
	e := voters("m1 m2 m3")
	machines := map[string]*lease.Machine{}
	for i, name := range e.Members {
		m, err := lease.New(now, lease.Options{Self: name, Incarnation: uint64(i + 1), Electorate: e})
		if err != nil {
			b.Fatal(err)
		}
		for i := range 1000 {
			m.Campaign(now, lease.Candidacy{Lease: fmt.Sprint("vip-", i), Priority: len(machines)})
		}
		machines[name] = m
	}
	granted, sent, size := 0, 0, 0
	run := func(d time.Duration) {
		for end := now.Add(d); now.Before(end); now = now.Add(step) {
			for _, name := range e.Members {
				m := machines[name]
				if next := m.Next(); now.Before(next) {
					continue
				}
				m.Tick(now)
			}
			for busy := true; busy; {
				busy = false
				for _, name := range e.Members {
					out, events := machines[name].Take()
					granted += len(events)
					for _, o := range out {
						bytes, err := o.AppendBinary(nil)
						if err != nil {
							b.Fatal(err)
						}
						msg, err := message.Parse(bytes)
						if err != nil {
							b.Fatal(err)
						}
						machines[o.To].Receive(now, msg)
						busy = true
						sent, size = sent+1, size+len(bytes)
					}
				}
			}
		}
	}
	run(4 * duration)
	granted, sent, size = 0, 0, 0
	b.ReportAllocs()
	for b.Loop() {
		run(duration / 3)
	}
	b.ReportMetric(float64(granted)/float64(b.N), "renewals/op")
	b.ReportMetric(float64(sent)/float64(b.N), "messages/op")
	b.ReportMetric(float64(size)/float64(b.N), "bytes/op")
}

// TestBatches counts the messages for renewing 1,000 leases.
func TestBatches(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	var names []string
	for i := range 1000 {
		names = append(names, fmt.Sprintf("vip-%d", i))
	}
	c.campaign(names...)
	c.await(2*duration, "all held", func() bool {
		for _, name := range names {
			if c.holder(name) == "" {
				return false
			}
		}
		return true
	})
	held := map[string]int{}
	for _, name := range names {
		held[c.holder(name)]++
	}
	c.run(3 * duration)
	sent, bytes := c.sent, c.bytes
	c.run(10 * duration)
	// Three times per Duration, each member sends 1,000 candidacies to 2 others, and requests or grants its share of
	// the renewals.
	messages, size := (c.sent-sent)/30, (c.bytes-bytes)/30
	t.Logf("leases %v; per third of a lease: %d messages, %d bytes", held, messages, size)
	if messages > 150 {
		t.Errorf("%d messages, want at most 150", messages)
	}
	for _, name := range names {
		if c.holder(name) == "" {
			t.Fatalf("%s has no holder", name)
		}
	}
}
