// Package record writes and reads benchmark results in Go's benchmark format: lines
// "key: value" for the settings of the run, and a line for each trial or measure.
package record

import (
	"cmp"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/perf/benchfmt"
	"golang.org/x/sys/unix"
)

// Inconclusive is the unit of a discarded trial. Its name ends with the reason.
const Inconclusive = "inconclusive"

// Value is one measured value. +Inf means that the event never happened.
type Value struct {
	Value float64
	Unit  string
}

// Never is the value of an event that never happened.
func Never(unit string) Value { return Value{math.Inf(1), unit} }

// Failed returns the values of a count of failed connections.
func Failed(failed, all int) []Value {
	return []Value{{float64(failed), "failed"}, {float64(all), "connections"}}
}

// Result is the result of one trial or measure.
type Result struct {
	Name   string // without "Benchmark", as made by [Name]
	Values []Value
}

// Setting is one setting of a run.
type Setting struct{ Key, Value string }

// Run holds the settings and results of a run, in order of measurement.
type Run struct {
	Settings []Setting
	Results  []Result
}

// plain replaces the characters that names must not have.
var plain = strings.NewReplacer(" ", "_", "\n", "_", "\t", "_", "/", "∕")

// Name makes the name of a result from its benchmark, keys and values. It omits a key
// without a value.
func Name(benchmark string, pairs ...string) string {
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] != "" {
			benchmark += "/" + pair[0] + "=" + plain.Replace(pair[1])
		}
	}
	return benchmark
}

// Get returns the readable value of a key in the name; empty if it is absent.
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

// Sample returns the values with a unit of the results that match, or of all if match is nil.
func (r *Run) Sample(unit string, match func(Result) bool) Sample {
	var s Sample
	for _, result := range r.Results {
		if value, ok := result.Value(unit); ok && (match == nil || match(result)) {
			s = append(s, value)
		}
	}
	return s
}

// Sample is a set of values, in order of measurement.
type Sample []float64

// Median returns the middle value (the mean of two), NaN if there is none.
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

// Sum returns the sum of all values.
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

// New begins a record with the run's settings.
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

// Err returns the first error in writing.
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

// Discard writes that a trial proves nothing, and the reason.
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

// Kept reads the last run of a benchmark in docs/benchmarks, given the path of docs.
func Kept(docs, benchmark string) (*Run, error) {
	paths, err := filepath.Glob(filepath.Join(docs, "benchmarks", "????-??-??-"+benchmark+".txt"))
	if err != nil || len(paths) == 0 {
		return nil, errors.Join(fmt.Errorf("no recorded run of %s", benchmark), err)
	}
	return Read(slices.Max(paths))
}

// Missing returns the keys of results that kept has and r lacks. Discarded results,
// and results with the key "", do not count.
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

// Parse reads a run; path is its source, for errors.
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

// Here returns the settings of a run that begins now, on this machine, with the
// programs at these paths, by name. It omits missing programs.
func Here(ctx context.Context, programs map[string]string) []Setting {
	model, memory := machine()
	list := []Setting{
		{"began", time.Now().UTC().Format("2006-01-02T15:04:05Z")},
		{"machine", fmt.Sprintf("%d cores of %s, %.0f GiB", runtime.NumCPU(), model, memory)},
	}
	var uts unix.Utsname
	if unix.Uname(&uts) == nil {
		list = append(list, Setting{"kernel", unix.ByteSliceToString(uts.Release[:])})
	}
	for _, name := range []string{"herald", "frr", "bird", "exabgp", "keepalived", "haproxy", "kubernetes", "metallb"} {
		if path, ok := programs[name]; ok {
			if v := version(ctx, name, path); v != "" {
				list = append(list, Setting{name, v})
			}
		}
	}
	return list
}

// version asks a program for its version. Go programs, except Herald, report the
// version of their module.
func version(ctx context.Context, name, path string) string {
	if name == "kubernetes" || name == "metallb" {
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return ""
		}
		return strings.TrimPrefix(info.Main.Version, "v")
	}
	how := map[string]string{"herald": "version", "haproxy": "-v"}
	said, _ := exec.CommandContext(ctx, path, cmp.Or(how[name], "--version")).CombinedOutput()
	if name == "herald" {
		first, _, _ := strings.Cut(string(said), "\n")
		return strings.TrimPrefix(strings.TrimSpace(first), "herald ")
	}
	return number.FindString(string(said))
}

var number = regexp.MustCompile(`\d+\.\d+(\.\d+)?`)

// machine returns the name of the first processor, and the memory in GiB.
func machine() (model string, memory float64) {
	model = "an unknown CPU"
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return model, 0
	}
	if info, err := fs.CPUInfo(); err == nil && len(info) > 0 && info[0].ModelName != "" {
		model = info[0].ModelName
	}
	if m, err := fs.Meminfo(); err == nil && m.MemTotalBytes != nil {
		memory = float64(*m.MemTotalBytes) / (1 << 30)
	}
	return model, memory
}
