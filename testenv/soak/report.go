package soak

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/herald-vip/herald/internal/probe"
	"github.com/herald-vip/herald/testenv/holders"
)

// Report is the result of a soak. It marshals to JSON, durations in nanoseconds.
type Report struct {
	Seed uint64 `json:"seed"`

	// On the bgp topology, Judged counts the times that a sign had to go, and Due is the
	// share of the time that signs had to be present.
	Limits Limits  `json:"limits"`
	Judged int     `json:"judged"`
	Due    float64 `json:"due"`

	// On the flat topology, Questions counts the observer's probes, Answers the answers,
	// and Holders the changes of holder, over both VIP addresses. Looks counts the
	// comparisons of kernel and status, by stage.
	Lease     time.Duration  `json:"leaseNs"`
	Questions int            `json:"questions"`
	Answers   int            `json:"answers"`
	Holders   int            `json:"holders"`
	Looks     map[string]int `json:"looks"`
	Strangers map[string]int `json:"strangers"`

	Violations []Violation     `json:"violations"`
	Probes     []*probe.Result `json:"probes"`
	Samples    []Sample        `json:"samples"`
	Growth     []Growth        `json:"growth"`
	Trace      *Trace          `json:"trace"`
}

func (r *Report) write(path string) error {
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

// WriteText writes the report for people: the faults by kind, the client's results,
// the speakers' growth, and each violation with the events around it.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, %v, %d faults, %d changes of routes and addresses, %d stalls of the observer, %v together\n",
		r.Seed, r.Trace.End.Round(time.Second), len(r.Trace.Incidents), len(r.Trace.Changes), len(r.Trace.Stalls),
		r.Trace.stalled(Span{0, r.Trace.End}).Round(time.Millisecond))
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	r.writeFaults(table)
	r.writeWindows(table)
	r.writeGrowth(table)
	if err := table.Flush(); err != nil {
		return err
	}
	for _, p := range r.Probes {
		fmt.Fprintln(&b)
		var text strings.Builder
		if err := p.WriteText(&text); err != nil {
			return err
		}
		for line := range strings.Lines(text.String()) {
			if !strings.HasPrefix(line, " ") { // the JSON has the single outages; there are hundreds
				b.WriteString(line)
			}
		}
	}
	if r.Lease > 0 {
		two := slices.ContainsFunc(r.Violations, func(v Violation) bool { return v.Rule == Rule(holders.TwoHolders) })
		fmt.Fprintf(&b, "\nlease %v, %d questions, %d answers, the holder changed %d times\nkernels compared with what their speakers say: %v\ntwo holders: %s\n",
			r.Lease, r.Questions, r.Answers, r.Holders, r.Looks, map[bool]string{false: "never", true: "YES"}[two])
	} else {
		fmt.Fprintf(&b, "\n%d times a route or an address had to go, and they had to be present for %.0f %% of the time\n", r.Judged, 100*r.Due)
	}
	fmt.Fprintf(&b, "%d violations\n", len(r.Violations))
	for _, v := range r.Violations {
		fmt.Fprintf(&b, "\n%s\n", v)
		for _, line := range v.Around {
			fmt.Fprintf(&b, "    %s\n", line)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) writeFaults(w io.Writer) {
	fmt.Fprintln(w, "\nfault\ttimes")
	times := make(map[Kind]int)
	for _, i := range r.Trace.Incidents {
		times[i.Kind]++
	}
	for _, kind := range slices.Sorted(maps.Keys(times)) {
		fmt.Fprintf(w, "%s\t%d\n", kind, times[kind])
	}
}

func (r *Report) writeWindows(w io.Writer) {
	fmt.Fprintln(w, "\nplanned change\tconnections\tfailed")
	for _, win := range r.Trace.Windows {
		n, _ := win.dropped()
		fmt.Fprintf(w, "%s\t%d\t%d\n", win.Change, win.Attempts, n)
	}
}

func (r *Report) writeGrowth(w io.Writer) {
	fmt.Fprintln(w, "\nspeaker\tprocess\tsamples\tgoroutines\tdescriptors\theap KiB\tresident KiB")
	for _, g := range r.Growth {
		fmt.Fprintf(w, "%s\t%d\t%d", g.Master, g.PID, g.Samples)
		for _, f := range figures() {
			unit := 1.0
			if strings.HasSuffix(f.metric, "_bytes") {
				unit = 1 << 10
			}
			fmt.Fprintf(w, "\t%.0f → %.0f", g.First.Figures[f.metric]/unit, g.Last.Figures[f.metric]/unit)
		}
		fmt.Fprintln(w)
	}
}
