package soak

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/herald-vip/herald/testenv/lab"
)

// Sample is the resource usage of a speaker's process at a quiet moment.
type Sample struct {
	At     time.Duration `json:"atNs"`
	Master string        `json:"master"`
	PID    int           `json:"pid"`

	Goroutines  float64 `json:"goroutines"`
	Descriptors float64 `json:"descriptors"`
	Resident    float64 `json:"residentBytes"`
	// Heap is the heap size at which the next collection is due: twice the live heap,
	// without garbage not yet collected.
	Heap float64 `json:"heapBytes"`
}

// figures maps metric names to the sample's fields.
func (s *Sample) figures() map[string]*float64 {
	return map[string]*float64{
		"go_goroutines":                 &s.Goroutines,
		"process_open_fds":              &s.Descriptors,
		"process_resident_memory_bytes": &s.Resident,
		"go_memstats_next_gc_bytes":     &s.Heap,
	}
}

// measure reads a speaker's own metrics.
func measure(ctx context.Context, n *lab.Node) (s Sample, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:9474/metrics", nil)
	if err != nil {
		return s, err
	}
	client := http.Client{Transport: &http.Transport{DialContext: n.DialContext, DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	s.PID = n.Daemons()[0].Pid()
	return s, s.parse(resp.Body)
}

// parse reads the figures from a page of metrics.
func (s *Sample) parse(page io.Reader) error {
	missing := s.figures()
	lines := bufio.NewScanner(page)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		field, ok := missing[name]
		if !ok {
			continue
		}
		var err error
		if *field, err = strconv.ParseFloat(value, 64); err != nil {
			return fmt.Errorf("metric %s: %w", name, err)
		}
		delete(missing, name)
	}
	if err := lines.Err(); err != nil {
		return err
	}
	for name := range missing {
		return fmt.Errorf("metric %s: not exported", name)
	}
	return nil
}

// Bounds on the growth between the first and the last quarter of a process's samples:
// memory by a share and a fixed amount, all else by a fixed amount.
const (
	growthShare  = 1.2
	growthBytes  = 5 << 20
	growthHandle = 5
	// fewest is the number of samples of a process that show a trend.
	fewest = 4
)

// Growth holds the medians of the first and the last quarter of a process's samples.
type Growth struct {
	Master  string `json:"master"`
	PID     int    `json:"pid"`
	Samples int    `json:"samples"`
	First   Sample `json:"first"`
	Last    Sample `json:"last"`
}

// Grow returns the growth of each process that has enough samples.
func Grow(samples []Sample) []Growth {
	var list []Growth
	for len(samples) > 0 {
		first := samples[0]
		others := func(s Sample) bool { return s.Master != first.Master || s.PID != first.PID }
		own := slices.DeleteFunc(slices.Clone(samples), others)
		samples = slices.DeleteFunc(slices.Clone(samples), func(s Sample) bool { return !others(s) })
		if len(own) >= fewest {
			quarter := max(len(own)/4, 1)
			list = append(list, Growth{first.Master, first.PID, len(own), median(own[:quarter]), median(own[len(own)-quarter:])})
		}
	}
	return list
}

// excess describes each figure that grew beyond its bound; it is empty if none did.
func (g Growth) excess() []string {
	var out []string
	check := func(what string, first, last, bound float64) {
		if last > bound {
			out = append(out, fmt.Sprintf("%s grew from %.0f to %.0f", what, first, last))
		}
	}
	check("goroutines", g.First.Goroutines, g.Last.Goroutines, g.First.Goroutines+growthHandle)
	check("descriptors", g.First.Descriptors, g.Last.Descriptors, g.First.Descriptors+growthHandle)
	check("heap", g.First.Heap, g.Last.Heap, g.First.Heap*growthShare+growthBytes)
	return out
}

// median returns a sample with the median of each figure.
func median(samples []Sample) Sample {
	m := samples[0]
	for name, field := range m.figures() {
		var values []float64
		for _, s := range samples {
			values = append(values, *s.figures()[name])
		}
		slices.Sort(values)
		*field = values[len(values)/2]
	}
	return m
}

// CheckGrowth reports each process that grew beyond its bound.
func CheckGrowth(samples []Sample) []Violation {
	var found []Violation
	for _, g := range Grow(samples) {
		for _, e := range g.excess() {
			found = append(found, Violation{At: g.Last.At, Rule: Grown, Reason: fmt.Sprintf("speaker of %s, process %d: %s, in %d samples", g.Master, g.PID, e, g.Samples)})
		}
	}
	return found
}
