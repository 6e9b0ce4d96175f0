package bench

import (
	"fmt"
	"io"
	"slices"
)

// Measure is something that is measured of an announcer of Services.
type Measure string

// The measures. Values are in seconds, bytes, or requests, and those of planned changes
// are two: the connections that failed, and all.
const (
	EndpointReady       Measure = "endpoint ready, until the router's kernel has the route"
	EndpointReadyTold   Measure = "endpoint ready, until the router is told"
	EndpointUnready     Measure = "endpoint unready, until the router's kernel has the route"
	EndpointUnreadyTold Measure = "endpoint unready, until the router is told"
	EventCPU            Measure = "one change of an endpoint, CPU of all nodes"

	PowerLossTaken  Measure = "node loses power, ARP: until another answers"
	PowerLossOutage Measure = "node loses power, ARP: outage of a client"
	PowerLossSplit  Measure = "node loses power, ARP: two nodes answer"
	PartitionTaken  Measure = "nodes parted, ARP: until another answers"
	PartitionOutage Measure = "nodes parted, ARP: outage of a client"
	PartitionSplit  Measure = "nodes parted and healed, ARP: two nodes answer"

	NodeDrainARP      Measure = "node drained, ARP"
	NodeDrainBGP      Measure = "node drained, BGP"
	SpeakerRestartARP Measure = "speaker restarted, ARP"
	SpeakerRestartBGP Measure = "speaker restarted, BGP"

	Restart      Measure = "speaker started, until the router has all routes over it"
	RestartFirst Measure = "speaker started, until the router has the first"

	GrowthCreate   Measure = "growth: the API server takes the Services"
	GrowthComplete Measure = "growth: from the last Service until the router has all routes"
	GrowthCPU      Measure = "growth: CPU of all nodes"
	GrowthWrites   Measure = "growth: writes for each Service"
	GrowthEvents   Measure = "growth: events for each Service"

	MemorySpeaker    Measure = "memory of each speaker"
	MemoryController Measure = "memory of the controller"

	SteadyWrites Measure = "at rest: writes a minute"
	SteadyReads  Measure = "at rest: gets and lists a minute"
	SteadyLeases Measure = "at rest: requests for leases a minute"
	SteadyCPU    Measure = "at rest: CPU of all nodes"
)

// Measurement is what was measured of an announcer with a number of Services.
type Measurement struct {
	Announcer string  `json:"announcer"`
	Measure   Measure `json:"measure"`
	// Services is how many there were; 0 where that does not matter.
	Services int `json:"services,omitempty"`
	// Values are those of each trial or process.
	Values []float64 `json:"values"`
}

// ServiceResults are what a run measured of the announcing of Services. They marshal
// to JSON, and everything that is told of a run is made from them.
type ServiceResults struct {
	Setting
	// Measurements are in the order in which they were made.
	Measurements []Measurement `json:"measurements"`
}

// WriteJSON writes the results such that ReadServiceJSON reads them, a measurement a line.
func (r *ServiceResults) WriteJSON(w io.Writer) error { return writeJSON(w, r, `{"announcer":`) }

// ReadServiceJSON reads what WriteJSON wrote.
func ReadServiceJSON(in io.Reader) (*ServiceResults, error) {
	return readJSON[ServiceResults](in, "the benchmark of Services")
}

// Join adds what another part of the run measured.
func (r *ServiceResults) Join(part *ServiceResults) {
	r.Took += part.Took
	r.Measurements = append(r.Measurements, part.Measurements...)
}

// find is what was measured; ok is whether it was.
func (r *ServiceResults) find(announcer string, m Measure, services int) (found Measurement, ok bool) {
	i := slices.IndexFunc(r.Measurements, func(f Measurement) bool {
		return f.Announcer == announcer && f.Measure == m && f.Services == services
	})
	if i < 0 {
		return found, false
	}
	return r.Measurements[i], true
}

// median is the middle value (the mean of two).
func (m Measurement) median() float64 {
	v := slices.Sorted(slices.Values(m.Values))
	if len(v) == 0 {
		return 0
	}
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// most is the largest value, least the smallest.
func (m Measurement) most() float64  { return slices.Max(m.Values) }
func (m Measurement) least() float64 { return slices.Min(m.Values) }

// text shows the values for people: the median and, of several, the range; of memory the
// largest process; of planned changes what failed.
func (m Measurement) text() string {
	if len(m.Values) == 0 {
		return "–"
	}
	format, unit, factor := m.Measure.show()
	show := func(v float64) string { return fmt.Sprintf(format, v*factor) }
	switch {
	case m.Measure.planned():
		return fmt.Sprintf("%.0f of %.0f", m.Values[0], m.Values[1])
	case m.Measure == MemorySpeaker:
		return show(m.most()) + unit
	case len(m.Values) == 1:
		return show(m.Values[0]) + unit
	}
	return fmt.Sprintf("%s (%s–%s)%s", show(m.median()), show(m.least()), show(m.most()), unit)
}

// planned reports whether values are connections.
func (m Measure) planned() bool {
	switch m {
	case NodeDrainARP, NodeDrainBGP, SpeakerRestartARP, SpeakerRestartBGP:
		return true
	}
	return false
}

// value shows one value.
func (m Measure) value(v float64) string {
	format, unit, factor := m.show()
	return fmt.Sprintf(format, v*factor) + unit
}

// show is how values of the measure are written: the format of one, the unit, and what
// it is multiplied by for that.
func (m Measure) show() (format, unit string, factor float64) {
	switch m {
	case MemorySpeaker, MemoryController:
		return "%.0f", " MB", 1e-6
	case EndpointReady, EndpointReadyTold, EndpointUnready, EndpointUnreadyTold, EventCPU:
		return "%.1f", " ms", 1e3
	case SteadyWrites, SteadyReads, SteadyLeases:
		return "%.0f", "", 1
	case SteadyCPU:
		return "%.1f", " %", 100
	case GrowthWrites, GrowthEvents:
		return "%.2f", "", 1
	}
	return "%.2f", " s", 1
}
