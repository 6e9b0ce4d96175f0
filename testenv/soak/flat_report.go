package soak

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/herald-vip/herald/probe"
	"github.com/herald-vip/herald/testenv/segment"
)

// FlatReport is what came of a soak on the flat topology. It marshals to JSON,
// durations in nanoseconds.
type FlatReport struct {
	Seed  uint64        `json:"seed"`
	Lease time.Duration `json:"leaseNs"`
	// Questions is how often the observer asked, Answers how many answers it
	// saw, Holders how often the holder changed, over both addresses of the VIP.
	Questions int `json:"questions"`
	Answers   int `json:"answers"`
	Holders   int `json:"holders"`
	// Looks is how often a kernel was compared with what its speaker says, by stage.
	Looks      map[string]int  `json:"looks"`
	Strangers  map[string]int  `json:"strangers"`
	Violations []Violation     `json:"violations"`
	Probes     []*probe.Result `json:"probes"`
	Samples    []Sample        `json:"samples"`
	Growth     []Growth        `json:"growth"`
	Trace      *Trace          `json:"trace"`
}

// count sums up what the observer saw.
func (r *FlatReport) count(seen *segment.Trace, l segment.Limits) {
	r.Strangers = seen.Strangers
	for _, vip := range flatVIPs() {
		r.Questions += len(seen.Questions[vip])
		r.Holders += max(0, len(seen.Reigns(vip, l))-1)
	}
	for _, s := range seen.Sightings {
		if s.Act == segment.Answers {
			r.Answers++
		}
	}
}

func (r *FlatReport) write(path string) error {
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

// WriteText writes the report for people: the faults by kind, what the client
// saw in planned changes, and each violation with what happened around it.
func (r *FlatReport) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, lease %v, %v, %d faults, %d questions, %d answers, the holder changed %d times\n",
		r.Seed, r.Lease, r.Trace.End.Round(time.Second), len(r.Trace.Incidents), r.Questions, r.Answers, r.Holders)
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nfault\ttimes")
	for _, t := range flatTraits() {
		if n := len(slices.DeleteFunc(slices.Clone(r.Trace.Incidents), func(i Incident) bool { return i.Kind != t.kind })); n > 0 {
			fmt.Fprintf(table, "%s\t%d\n", t.kind, n)
		}
	}
	fmt.Fprintln(table, "\nplanned change\tconnections\tfailed")
	for _, win := range r.Trace.Windows {
		n, _ := win.dropped()
		fmt.Fprintf(table, "%s\t%d\t%d\n", win.Change, win.Attempts, n)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	two := slices.ContainsFunc(r.Violations, func(v Violation) bool { return v.Rule == Rule(segment.TwoHolders) })
	fmt.Fprintf(&b, "\nkernels compared with what their speakers say: %v\n", r.Looks)
	fmt.Fprintf(&b, "\ntwo holders: %s\n%d violations\n", map[bool]string{false: "never", true: "YES"}[two], len(r.Violations))
	for _, v := range r.Violations {
		fmt.Fprintf(&b, "\n%s\n", v)
		for _, line := range v.Around {
			fmt.Fprintf(&b, "    %s\n", line)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
