package bench

import (
	"fmt"
	"io"
	"slices"
)

// BalancerMeasure is something that is measured of a balancer.
type BalancerMeasure string

// The measures. Values are seconds, 10^9 bits a second, connections a second, or
// connections; those that count what went wrong are pairs, of what did and of all.
const (
	Spread         BalancerMeasure = "connections at each master"
	Rate           BalancerMeasure = "new connections a second"
	RateMedian     BalancerMeasure = "latency of a new connection at that rate, median"
	RateP99        BalancerMeasure = "latency of a new connection at that rate, p99"
	ConnectionCPU  BalancerMeasure = "CPU of a new connection, all processes"
	ConnectionBusy BalancerMeasure = "CPU of a new connection, whole machine"
	FixedMedian    BalancerMeasure = "latency at 1,000 connections/s, median"
	FixedP99       BalancerMeasure = "latency at 1,000 connections/s, p99"
	FixedLate      BalancerMeasure = "connections that the client began late"
	Throughput1    BalancerMeasure = "throughput, 1 stream"
	Throughput8    BalancerMeasure = "throughput, 8 streams"
	GigabyteCPU1   BalancerMeasure = "CPU of 10^9 bytes, 1 stream, all processes"
	GigabyteCPU8   BalancerMeasure = "CPU of 10^9 bytes, 8 streams, all processes"
	GigabyteBusy1  BalancerMeasure = "CPU of 10^9 bytes, 1 stream, whole machine"
	GigabyteBusy8  BalancerMeasure = "CPU of 10^9 bytes, 8 streams, whole machine"

	KilledFailed   BalancerMeasure = "server killed: connections to it that failed"
	KilledOthers   BalancerMeasure = "server killed: connections to others that failed"
	KilledOut      BalancerMeasure = "server killed: until the last connection that failed"
	KilledTold     BalancerMeasure = "server killed: from its own speaker's notice until the last one that failed"
	VanishedFailed BalancerMeasure = "host vanished: connections to it that failed"
	VanishedOthers BalancerMeasure = "host vanished: connections to others that failed"
	VanishedOut    BalancerMeasure = "host vanished: until the last connection that failed"
	DrainedFailed  BalancerMeasure = "server drained and added: new connections that failed"
	DrainedLost    BalancerMeasure = "server drained and added: established connections lost"

	Joined       BalancerMeasure = "master joins: from its server found healthy until a worker leads to it"
	JoinedStart  BalancerMeasure = "master joins: from its speaker's start until a worker leads to it"
	JoinedFailed BalancerMeasure = "master joins: connections that failed"
	Left         BalancerMeasure = "master leaves: until a worker's last connection to it"
	LeftFailed   BalancerMeasure = "master leaves: connections that failed"
	Died         BalancerMeasure = "master dies for good: until a worker's last connection that failed"
	DiedOthers   BalancerMeasure = "master dies for good: connections to others that failed"

	RestartLost    BalancerMeasure = "restarted: established connections lost"
	RestartFailed  BalancerMeasure = "restarted: new connections that failed"
	CrashLost      BalancerMeasure = "killed and started: established connections lost"
	CrashFailed    BalancerMeasure = "killed and started: new connections that failed"
	UpgradeLost    BalancerMeasure = "upgraded: established connections lost"
	UpgradeFailed  BalancerMeasure = "upgraded: new connections that failed"
	ReloadLost     BalancerMeasure = "reloaded: established connections lost"
	ReloadFailed   BalancerMeasure = "reloaded: new connections that failed"
	ExternalLost   BalancerMeasure = "internal to external and back: established connections lost"
	ExternalFollow BalancerMeasure = "internal to external: until nobody listens"
	InternalFollow BalancerMeasure = "external to internal: until connections are taken"
)

// The paths.
const (
	local  = "local"  // from the machine that the balancer is on, to 127.0.0.1
	remote = "remote" // from another machine, to its address
)

// BalancerFigure is what was measured of a balancer.
type BalancerFigure struct {
	Balancer string          `json:"balancer"`
	Measure  BalancerMeasure `json:"measure"`
	// Path is local or remote; empty where it was not both.
	Path string `json:"path,omitempty"`
	// Values are those of each round or trial, or of each master.
	Values []float64 `json:"values"`
}

// BalancerResults are what a run measured of balancers. They marshal to JSON, and
// everything that is told of a run is made from them.
type BalancerResults struct {
	Setting
	// Figures are in the order in which they were first measured.
	Figures []BalancerFigure `json:"figures"`
}

// WriteJSON writes the results such that ReadBalancerJSON reads them, a figure a line.
func (r *BalancerResults) WriteJSON(w io.Writer) error { return writeJSON(w, r, `{"balancer":`) }

// ReadBalancerJSON reads what WriteJSON wrote.
func ReadBalancerJSON(in io.Reader) (*BalancerResults, error) {
	return readJSON[BalancerResults](in, "the benchmark of balancers")
}

// Join adds what another part of the run measured.
func (r *BalancerResults) Join(part *BalancerResults) {
	r.Took += part.Took
	r.Figures = append(r.Figures, part.Figures...)
}

// find is what was measured; ok is whether it was.
func (r *BalancerResults) find(balancer string, m BalancerMeasure, path string) (found BalancerFigure, ok bool) {
	i := slices.IndexFunc(r.Figures, func(f BalancerFigure) bool {
		return f.Balancer == balancer && f.Measure == m && f.Path == path && len(f.Values) > 0
	})
	if i < 0 {
		return found, false
	}
	return r.Figures[i], true
}

// unit is how values of a measure are written.
type unit struct {
	format string  // of a value
	name   string  // after it
	factor float64 // by which it is multiplied before
	pairs  bool    // whether values are pairs, of what went wrong and of all
	list   bool    // whether each value stands for itself
}

func (m BalancerMeasure) unit() unit {
	switch m {
	case Spread:
		return unit{format: "%.0f", factor: 1, list: true}
	case Rate:
		return unit{format: "%.0f", name: "/s", factor: 1}
	case RateMedian, RateP99, FixedMedian, FixedP99:
		return unit{format: "%.2f", name: " ms", factor: 1e3}
	case ConnectionCPU, ConnectionBusy:
		return unit{format: "%.0f", name: " µs", factor: 1e6}
	case KilledOut, KilledTold:
		return unit{format: "%.1f", name: " ms", factor: 1e3}
	case Throughput1, Throughput8:
		return unit{format: "%.1f", name: " Gbit/s", factor: 1}
	case GigabyteCPU1, GigabyteCPU8, GigabyteBusy1, GigabyteBusy8, VanishedOut,
		Joined, JoinedStart, Left, Died, ExternalFollow, InternalFollow:
		return unit{format: "%.0f", name: " ms", factor: 1e3}
	}
	return unit{pairs: true}
}

// median is the middle value (the mean of two).
func (f BalancerFigure) median() float64 { return Measurement{Values: f.Values}.median() }

// most is the largest value.
func (f BalancerFigure) most() float64 { return slices.Max(f.Values) }

// wrong sums up pairs: what went wrong, and all.
func (f BalancerFigure) wrong() (wrong, all float64) {
	for pair := range slices.Chunk(f.Values, 2) {
		wrong, all = wrong+pair[0], all+pair[len(pair)-1]
	}
	return wrong, all
}

// text shows the values for people: the median and the range, or sums.
func (f BalancerFigure) text() string {
	u := f.Measure.unit()
	show := func(v float64) string { return fmt.Sprintf(u.format, v*u.factor) }
	switch {
	case len(f.Values) == 0:
		return "–"
	case u.pairs:
		wrong, all := f.wrong()
		return fmt.Sprintf("%.0f of %.0f", wrong, all)
	case u.list:
		text := ""
		for i, v := range f.Values {
			if i > 0 {
				text += ", "
			}
			text += show(v)
		}
		return text + u.name
	case len(f.Values) == 1:
		return show(f.Values[0]) + u.name
	}
	return fmt.Sprintf("%s (%s–%s)%s", show(f.median()), show(slices.Min(f.Values)), show(f.most()), u.name)
}
