package soak

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/herald-vip/herald/testenv/lab"
)

// figure is a metric of a speaker's process.
type figure struct {
	name, metric string
	// share and more bound its growth between the first and the last quarter of a
	// process's samples. Without a share there is no bound.
	share, more float64
}

func figures() []figure {
	return []figure{
		{"goroutines", "go_goroutines", 1, 5},
		{"descriptors", "process_open_fds", 1, 5},
		// The heap size at which the next collection is due: twice the live heap, without
		// garbage not yet collected.
		{"heap", "go_memstats_next_gc_bytes", 1.2, 5 << 20},
		{"resident", "process_resident_memory_bytes", 0, 0},
	}
}

// Sample is the resource usage of a speaker's process at a quiet moment, by metric.
type Sample struct {
	At      time.Duration      `json:"atNs"`
	Master  string             `json:"master"`
	PID     int                `json:"pid"`
	Figures map[string]float64 `json:"figures"`
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
	s.Figures, err = parse(resp.Body)
	return s, err
}

// parse reads the figures from a page of metrics.
func parse(page io.Reader) (map[string]float64, error) {
	shown := make(map[string]string)
	lines := bufio.NewScanner(page)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		shown[name] = value
	}
	values := make(map[string]float64)
	for _, f := range figures() {
		text, ok := shown[f.metric]
		if !ok {
			return nil, fmt.Errorf("metric %s: not exported", f.metric)
		}
		var err error
		if values[f.metric], err = strconv.ParseFloat(text, 64); err != nil {
			return nil, fmt.Errorf("metric %s: %w", f.metric, err)
		}
	}
	return values, lines.Err()
}

// fewest is the number of samples of a process that show a trend.
const fewest = 4

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

// median returns a sample with the median of each figure.
func median(samples []Sample) Sample {
	m := samples[0]
	m.Figures = maps.Clone(m.Figures)
	for metric := range m.Figures {
		var values []float64
		for _, s := range samples {
			values = append(values, s.Figures[metric])
		}
		slices.Sort(values)
		m.Figures[metric] = values[len(values)/2]
	}
	return m
}

// CheckGrowth reports each process that grew beyond its bound.
func CheckGrowth(samples []Sample) (found []Violation) {
	for _, g := range Grow(samples) {
		for _, f := range figures() {
			first, last := g.First.Figures[f.metric], g.Last.Figures[f.metric]
			if f.share > 0 && last > first*f.share+f.more {
				what := fmt.Sprintf("speaker of %s, process %d: %s grew from %.0f to %.0f, in %d samples", g.Master, g.PID, f.name, first, last, g.Samples)
				found = append(found, Violation{At: g.Last.At, Rule: Grown, Reason: what})
			}
		}
	}
	return found
}
