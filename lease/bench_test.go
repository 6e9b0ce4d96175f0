package lease_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/herald-vip/herald/lease"
)

// BenchmarkThousandLeases is the work of three members for 1,000 leases that one
// of them holds, during a third of a Duration: one renewal of each.
func BenchmarkThousandLeases(b *testing.B) {
	now := time.Unix(1_000_000, 0)
	e := electorate("m1 m2 m3")
	machines := map[string]*lease.Machine{}
	for i, name := range e.Members {
		m, err := lease.New(now, lease.Options{Self: name, Incarnation: uint64(i + 1), Electorate: e})
		if err != nil {
			b.Fatal(err)
		}
		for i := range 1000 {
			m.Stand(now, lease.Candidacy{Lease: fmt.Sprint("vip-", i), Priority: len(machines)})
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
						msg, err := lease.ParseMessage(bytes)
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
