// Package record writes and reads what benchmarks measured, in Go's benchmark
// format: lines "key: value" for what the run was made on, and a line for each
// trial or measure.
package record

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// Inconclusive is the unit of a trial that was discarded. Its name ends with the reason.
const Inconclusive = "inconclusive"

// Value is one measured value. What never came about is +Inf.
type Value struct {
	Value float64
	Unit  string
}

// Never is the value of what never came about.
func Never(unit string) Value { return Value{math.Inf(1), unit} }

// Result is what one trial, or one measure of it, gave.
type Result struct {
	Name   string // without "Benchmark", as [Name] makes it
	Values []Value
}

// Setting is one line of what a run was made on.
type Setting struct{ Key, Value string }

// Run is what a run measured, in the order in which it was measured.
type Run struct {
	Settings []Setting
	Results  []Result
}

// plain are the characters that a name has in the place of those that it may not have.
var plain = strings.NewReplacer(" ", "_", "\n", "_", "\t", "_", "/", "∕")

// Name makes the name of a result from that of its benchmark, and keys and values.
// A key without a value is left out.
func Name(benchmark string, pairs ...string) string {
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] != "" {
			benchmark += "/" + pair[0] + "=" + plain.Replace(pair[1])
		}
	}
	return benchmark
}

// Get returns what a key stands for in the name, for people; empty if it is not there.
func (r Result) Get(key string) string {
	for _, part := range strings.Split(r.Name, "/") {
		if value, ok := strings.CutPrefix(part, key+"="); ok {
			return strings.ReplaceAll(strings.ReplaceAll(value, "_", " "), "∕", "/")
		}
	}
	return ""
}

// Value returns the value with a unit.
func (r Result) Value(unit string) (float64, bool) {
	i := slices.IndexFunc(r.Values, func(v Value) bool { return v.Unit == unit })
	if i < 0 {
		return 0, false
	}
	return r.Values[i].Value, true
}

// Discarded reports whether the trial proves nothing.
func (r Result) Discarded() bool {
	_, ok := r.Value(Inconclusive)
	return ok
}

// Sample are the values of a unit of those results of which match says so, or of all if it is nil.
func (r *Run) Sample(unit string, match func(Result) bool) Sample {
	var s Sample
	for _, result := range r.Results {
		if value, ok := result.Value(unit); ok && (match == nil || match(result)) {
			s = append(s, value)
		}
	}
	return s
}

// Sample is a set of values, in the order in which they were measured.
type Sample []float64

// Median is the middle value (the mean of two), not a number if there is none.
func (s Sample) Median() float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	v := slices.Sorted(slices.Values(s))
	low, high := v[(len(v)-1)/2], v[len(v)/2]
	if low == high { // both may be infinite
		return low
	}
	return (low + high) / 2
}

// Sum is all of them together.
func (s Sample) Sum() (sum float64) {
	for _, v := range s {
		sum += v
	}
	return sum
}

// Recorder writes a run while it is made.
type Recorder struct {
	Run
	out io.Writer
	err error // the first
}

// New begins a record with the run's setting.
func New(out io.Writer, settings []Setting) *Recorder {
	r := &Recorder{Run: Run{Settings: settings}, out: out}
	for _, s := range settings {
		r.printf("%s: %s\n", s.Key, s.Value)
	}
	r.printf("\n")
	return r
}

func (r *Recorder) printf(format string, values ...any) {
	if _, err := fmt.Fprintf(r.out, format, values...); err != nil && r.err == nil {
		r.err = err
	}
}

// Err is why not all is written, if it is not.
func (r *Recorder) Err() error { return r.err }

// Add writes a result.
func (r *Recorder) Add(name string, values ...Value) {
	r.Results = append(r.Results, Result{name, values})
	line := "Benchmark" + name + " 1"
	for _, v := range values {
		line += fmt.Sprintf(" %.6g %s", v.Value, v.Unit)
	}
	r.printf("%s\n", line)
}

// Discard writes that a trial proves nothing, and why.
func (r *Recorder) Discard(name string, reason error) {
	r.Add(Name(name, Inconclusive, reason.Error()), Value{1, Inconclusive})
}

// Read reads a run from a file.
func Read(path string) (*Run, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Parse(f, path)
}

// Kept reads the last run of a benchmark that docs/benchmarks has, by the path of docs.
func Kept(docs, benchmark string) (*Run, error) {
	paths, err := filepath.Glob(filepath.Join(docs, "benchmarks", "????-??-??-"+benchmark+".txt"))
	if err != nil || len(paths) == 0 {
		return nil, errors.Join(fmt.Errorf("no run of %s is kept", benchmark), err)
	}
	return Read(slices.Max(paths))
}

// Missing are the keys of what kept has measured and r has not. What was discarded, or has the key "", does not count.
func (r *Run) Missing(kept *Run, key func(Result) string) (list []string) {
	keys := func(results []Result) map[string]bool {
		out := make(map[string]bool)
		for _, result := range results {
			if k := key(result); k != "" && !result.Discarded() {
				out[k] = true
			}
		}
		return out
	}
	measured := keys(r.Results)
	for _, k := range slices.Sorted(maps.Keys(keys(kept.Results))) {
		if !measured[k] {
			list = append(list, k)
		}
	}
	return list
}

// Parse reads a run; path is where it is from, for errors.
func Parse(in io.Reader, path string) (*Run, error) {
	run := new(Run)
	reader := benchfmt.NewReader(in, path)
	for reader.Scan() {
		switch r := reader.Result().(type) {
		case *benchfmt.Result:
			result := Result{Name: string(r.Name)}
			for _, v := range r.Values {
				result.Values = append(result.Values, Value{v.Value, v.Unit})
			}
			run.Results = append(run.Results, result)
			if run.Settings == nil {
				for _, c := range r.Config {
					if c.File {
						run.Settings = append(run.Settings, Setting{c.Key, string(c.Value)})
					}
				}
			}
		case *benchfmt.SyntaxError:
			return nil, r
		}
	}
	return run, reader.Err()
}
