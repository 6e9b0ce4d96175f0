package bench

import "fmt"

// ServiceTarget is something that is wanted of Herald where it announces Services, and
// what came of it in a run.
type ServiceTarget struct {
	Measure  Measure
	Services int
	// Wanted and Measured say it in words; Met says whether the one is as good as the other.
	Wanted, Measured string
	Met              bool
}

// Targets compares Herald with what is wanted of it. What was not measured is left out.
func (r *ServiceResults) Targets() (list []ServiceTarget) {
	add := func(m Measure, services int, judge func(Measurement) (wanted string, met bool)) {
		if f, ok := r.find("herald", m, services); ok {
			wanted, met := judge(f)
			list = append(list, ServiceTarget{m, services, wanted, f.text(), met})
		}
	}
	for _, m := range []Measure{EndpointReady, EndpointUnready} {
		add(m, 1, func(f Measurement) (string, bool) {
			rival, ok := r.find("metallb", m, 1)
			return "≤ " + rival.text() + ", MetalLB's", ok && f.median() <= rival.median()
		})
	}
	atMost := func(limit float64) func(Measurement) (string, bool) {
		return func(f Measurement) (string, bool) {
			return "≤ " + f.Measure.value(limit), f.median() <= limit
		}
	}
	add(PowerLossTaken, flatServices, atMost(1))
	never := func(f Measurement) (string, bool) { return "never", f.most() == 0 }
	add(PowerLossSplit, flatServices, never)
	add(PartitionSplit, flatServices, never)
	none := func(f Measurement) (string, bool) { return "0 failed", f.Values[0] == 0 }
	for _, m := range []Measure{NodeDrainARP, NodeDrainBGP} {
		add(m, 0, none)
	}
	add(Restart, 1001, atMost(1))
	add(Restart, 3001, atMost(2))
	add(GrowthComplete, 3001, atMost(5))
	add(GrowthCPU, 3001, atMost(20))
	for _, m := range []struct {
		services int
		limit    float64
	}{{1, 50e6}, {1001, 65e6}, {3001, 90e6}} {
		add(MemorySpeaker, m.services, func(f Measurement) (string, bool) {
			return "≤ " + f.Measure.value(m.limit), f.most() <= m.limit
		})
	}
	add(EventCPU, 10000, func(f Measurement) (string, bool) {
		small, ok := r.find("herald", EventCPU, 100)
		return fmt.Sprintf("as with 100: %s", small.text()), ok && f.median() <= 2*small.median()
	})
	add(SteadyWrites, 3001, func(f Measurement) (string, bool) { return "0", f.most() == 0 })
	return list
}
