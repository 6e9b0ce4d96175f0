package soak

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
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

// recorder writes the trace of a run. All its times come from one monotonic clock.
type recorder struct {
	began time.Time

	mu    sync.Mutex
	trace Trace
	now   map[Sign]bool
	// changed is closed and replaced at every change of a sign.
	changed chan struct{}
}

func newRecorder() *recorder {
	return &recorder{began: time.Now(), trace: Trace{Ready: Never}, now: make(map[Sign]bool), changed: make(chan struct{})}
}

// clock returns the time since the start of the run.
func (r *recorder) clock() time.Duration { return time.Since(r.began) }

// see records the signs at a place: exactly those in here are present. The place is a
// router or, if router is empty, a master.
func (r *recorder) see(router, master string, here map[Sign]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.clock()
	note := func(s Sign, present bool) {
		r.trace.Changes = append(r.trace.Changes, Change{At: at, Sign: s, Present: present})
		close(r.changed)
		r.changed = make(chan struct{})
	}
	for s := range here {
		if !r.now[s] {
			r.now[s] = true
			note(s, true)
		}
	}
	for s := range r.now {
		if !here[s] && s.Router == router && (router != "" || s.Master == master) {
			delete(r.now, s)
			note(s, false)
		}
	}
}

// present returns the number of signs now, and a channel that is closed when it changes.
func (r *recorder) present() (n int, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.now), r.changed
}

// add calls change with the trace and the time, under the lock.
func (r *recorder) add(change func(t *Trace, now time.Duration)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.trace, r.clock())
}

// snapshot returns a copy of the trace so far.
func (r *recorder) snapshot() Trace {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.trace
	t.End = r.clock()
	t.Incidents = slices.Clone(t.Incidents) // all other lists are only appended to
	return t
}

// excused matches an access by GoBGP, which has data races of its own: when it ends a
// session, it reads fields that the session's goroutine may be writing.
var excused = regexp.MustCompile(`.* at 0x\S* by .*\n\s*github\.com/osrg/gobgp/`)

// races returns the race detector's reports in a speaker's log, except where both
// accesses are GoBGP's.
func races(log string) (found []string) {
	for _, part := range strings.Split(log, "==================") {
		if strings.Contains(part, "WARNING: DATA RACE") && len(excused.FindAllString(part, -1)) < 2 {
			found = append(found, strings.TrimSpace(part))
		}
	}
	return found
}

// checkRaces returns a violation per report in the speakers' logs.
func checkRaces(dir string) ([]Violation, error) {
	var found []Violation
	var failed error
	for _, m := range masters {
		log, err := os.ReadFile(filepath.Join(dir, m+"-speaker.log"))
		failed = errors.Join(failed, err)
		for _, r := range races(string(log)) {
			found = append(found, Violation{Rule: Raced, Reason: fmt.Sprintf("%s: %s", m, r)})
		}
	}
	return found, failed
}
