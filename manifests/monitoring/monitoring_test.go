// Package monitoring_test compares alerts, dashboard, runbook and the reference of metrics with the metrics
// that Herald exports.
package monitoring_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/status/metrics"
	"github.com/herald-vip/herald/testenv/must"
)

var update = flag.Bool("update", false, "write the table of metrics in docs/monitoring.md anew")

const docs = "../../docs/"

// metric is a metric of Herald.
type metric struct {
	kind, help string
	labels     []string
}

// scrape returns the metrics of a speaker that uses all features: sessions, BFD, an election, Services and
// balancers. Its status is composed of the statuses of four speakers in the lab.
func scrape(t *testing.T) string {
	t.Helper()
	var s, flat, services, worker admin.Status
	decode(t, "../../status/page/testdata/bgp.json", &s)
	decode(t, "../../status/page/testdata/flat.json", &flat)
	decode(t, "../../status/page/testdata/services.json", &services)
	decode(t, "../../status/page/testdata/worker.json", &worker)
	s.Services, s.Balancers = services.Services, worker.Balancers
	s.Node, s.Election, s.VIPs = flat.Node, flat.Election, append(s.VIPs, flat.VIPs...)
	s.Election.Offers = worker.Election.Offers
	w := httptest.NewRecorder()
	metrics.NewHandler(func() admin.Status { return s }, nil, nil).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

// exported returns all metrics by name.
func exported(t *testing.T) map[string]*metric {
	t.Helper()
	text := scrape(t)
	out := make(map[string]*metric)
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, help, _ := strings.Cut(rest, " ")
			out[name] = &metric{help: help}
		} else if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(rest, " ")
			out[name].kind = kind
		} else if name, rest, ok := strings.Cut(line, "{"); ok && out[name] != nil {
			for _, label := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(rest, -1) {
				if !slices.Contains(out[name].labels, label[1]) {
					out[name].labels = append(out[name].labels, label[1])
				}
			}
		}
	}
	if len(out) < 50 {
		t.Fatalf("only %d metrics in:\n%s", len(out), text)
	}
	return out
}

func decode(t *testing.T, path string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(read(t, path)), into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b := must.Get[[]byte](t)(os.ReadFile(path))
	return string(b)
}

type alert struct {
	Alert       string
	Expr        string
	Labels      map[string]string
	Annotations map[string]string
}

func alerts(t *testing.T) []alert {
	t.Helper()
	var file struct{ Groups []struct{ Rules []alert } }
	must.Do(t, yaml.Unmarshal([]byte(read(t, "alerts.yaml")), &file))
	return file.Groups[0].Rules
}

type panel struct {
	ID      int
	Title   string
	Type    string
	GridPos struct{ X, Y, W, H int }
	Targets []struct{ Expr string }
}

func panels(t *testing.T) []panel {
	t.Helper()
	var d struct{ Panels []panel }
	decode(t, "dashboard.json", &d)
	return d.Panels
}

func promtool(t *testing.T, stdin string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "promtool", args...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s (is Debian's prometheus installed? make test does it): %v\n%s", strings.Join(args, " "), err, out)
	}
}

// The metrics follow Prometheus' conventions.
func TestMetrics(t *testing.T) { promtool(t, scrape(t), "check", "metrics") }

func TestAlertRules(t *testing.T) {
	promtool(t, "", "check", "rules", "--lint=all", "--lint-fatal", "alerts.yaml")
	promtool(t, "", "test", "rules", "alerts_test.yaml")
}

// The tests of alerts show that each fires and stays silent, with series that Herald exports.
func TestEveryAlertIsTested(t *testing.T) {
	var file struct {
		Tests []struct {
			InputSeries []struct{ Series string } `yaml:"input_series"`
			Cases       []struct {
				Name   string `yaml:"alertname"`
				Alerts []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	must.Do(t, yaml.Unmarshal([]byte(read(t, "alerts_test.yaml")), &file))
	fires, silent, known := make(map[string]bool), make(map[string]bool), exported(t)
	for _, test := range file.Tests {
		for _, c := range test.Cases {
			fires[c.Name] = fires[c.Name] || len(c.Alerts) > 0
			silent[c.Name] = silent[c.Name] || len(c.Alerts) == 0
		}
		for _, in := range test.InputSeries {
			name, labels, _ := strings.Cut(in.Series, "{")
			m := known[name]
			if m == nil {
				if name != "up" {
					t.Errorf("Herald has no metric %s", name)
				}
				continue
			}
			want := slices.Sorted(slices.Values(append([]string{"job", "instance"}, m.labels...)))
			var got []string
			for _, label := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(labels, -1) {
				got = append(got, label[1])
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("%s: labels %v, want %v", in.Series, got, want)
			}
		}
	}
	for _, a := range alerts(t) {
		if !fires[a.Alert] || !silent[a.Alert] {
			t.Errorf("%s: tested to fire: %t, to be silent: %t", a.Alert, fires[a.Alert], silent[a.Alert])
		}
	}
}

// The runbook has a section for each alert and no other, in the same order.
func TestRunbook(t *testing.T) {
	sections := strings.Split(read(t, docs+"runbook.md"), "\n## ")[1:]
	var described, want []string
	for _, s := range sections {
		name, text, _ := strings.Cut(s, "\n")
		described = append(described, name)
		for _, part := range []string{"\n- **See**: ", "\n- **Causes**: ", "\n- **Cure**: "} {
			if !strings.Contains(text, part) {
				t.Errorf("the section of %s has no %q", name, part)
			}
		}
	}
	for _, a := range alerts(t) {
		want = append(want, a.Alert)
		url := "https://github.com/herald-vip/herald/blob/main/docs/runbook.md#" + strings.ToLower(a.Alert)
		if a.Annotations["runbook_url"] != url || a.Annotations["summary"] == "" || a.Annotations["description"] == "" {
			t.Errorf("%s: annotations %q, want the runbook at %s", a.Alert, a.Annotations, url)
		}
		if s := a.Labels["severity"]; s != "critical" && s != "warning" {
			t.Errorf("%s: severity %q", a.Alert, s)
		}
	}
	if diff := cmp.Diff(want, described); diff != "" {
		t.Errorf("(-alerts +sections):\n%s", diff)
	}
}

// Grafana shows an invalid panel as empty.
func TestDashboard(t *testing.T) {
	type rule struct {
		Record string `yaml:"record"`
		Expr   string `yaml:"expr"`
	}
	var rules []rule
	ids, taken := make(map[int]bool), make(map[[2]int]string)
	variables := strings.NewReplacer("$__rate_interval", "5m", "$job", ".+", "$instance", ".+")
	for _, p := range panels(t) {
		if ids[p.ID] {
			t.Errorf("two panels have the id %d", p.ID)
		}
		ids[p.ID] = true
		if len(p.Targets) == 0 && p.Type != "row" {
			t.Errorf("panel %q is empty", p.Title)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("panel %q is on %q or beyond the edge", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		for i, target := range p.Targets {
			expr := variables.Replace(target.Expr)
			if strings.Contains(expr, "$") {
				t.Errorf("panel %q uses an unknown variable: %s", p.Title, target.Expr)
			}
			rules = append(rules, rule{fmt.Sprintf("panel:%d:%d", p.ID, i), expr})
		}
	}
	out, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}})
	must.Do(t, err)
	path := filepath.Join(t.TempDir(), "dashboard.yaml")
	must.Do(t, os.WriteFile(path, out, 0o600))
	promtool(t, "", "check", "rules", path)
}

// Herald exports each metric that alerts, dashboard and pages name.
func TestMetricsExist(t *testing.T) {
	known := exported(t)
	names := regexp.MustCompile(`\b(?:herald|process|go)_[a-z_]+[a-z]\b`)
	check := func(where, text string) {
		found := names.FindAllString(text, -1)
		for _, name := range found {
			if known[name] == nil {
				t.Errorf("%s: Herald has no metric %s", where, name)
			}
		}
		if len(found) == 0 && !strings.Contains(text, "up{job") {
			t.Errorf("%s names no metric", where)
		}
	}
	for _, a := range alerts(t) {
		check(a.Alert, a.Expr)
	}
	for _, p := range panels(t) {
		for _, target := range p.Targets {
			check(p.Title, target.Expr)
		}
	}
	for _, page := range []string{"monitoring.md", "troubleshooting.md", "flat-layer-2.md"} {
		check(page, read(t, docs+page))
	}
}

// Dashboard and alerts use every metric, with exceptions.
func TestDashboardShowsEveryMetric(t *testing.T) {
	text := read(t, "dashboard.json") + read(t, "alerts.yaml")
	// A chart of these adds nothing to other charts.
	spare := []string{
		"herald_balancer_backend_since_timestamp_seconds", "herald_bfd_session_since_timestamp_seconds", "herald_bgp_session_since_timestamp_seconds",
		"herald_check_since_timestamp_seconds", "herald_config_generation", "herald_config_loaded_timestamp_seconds",
		"herald_kube_answered_timestamp_seconds", "herald_lease_holder", "herald_realtime", "herald_vip_conflicts_total",
	}
	for name := range exported(t) {
		used := regexp.MustCompile(name + `\b`).MatchString(text)
		if strings.HasPrefix(name, "herald_") && used == slices.Contains(spare, name) {
			t.Errorf("%s is used by alerts or dashboard: %t", name, used)
		}
	}
}

// The reference in docs/monitoring.md is generated from the metrics.
func TestReference(t *testing.T) {
	const begin, end = "<!-- metrics: made by go test ./manifests/monitoring -update -->\n", "<!-- end of metrics -->\n"
	known := exported(t)
	var table bytes.Buffer
	table.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if m := known[name]; strings.HasPrefix(name, "herald_") {
			labels := "–"
			if len(m.labels) > 0 {
				labels = "`" + strings.Join(m.labels, "`, `") + "`"
			}
			fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", name, m.kind, labels, m.help)
		}
	}
	path := docs + "monitoring.md"
	before, rest, ok := strings.Cut(read(t, path), begin)
	got, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", path)
	}
	if *update {
		must.Do(t, os.WriteFile(path, []byte(before+begin+table.String()+end+after), 0o644))
		return
	}
	if diff := cmp.Diff(table.String(), got); diff != "" {
		t.Errorf("%s is not what Herald exports; run go test ./manifests/monitoring -update (-exported +page):\n%s", path, diff)
	}
}

// The status page in docs/monitoring.md equals the golden file of status/page.
func TestPageInTheDocs(t *testing.T) {
	page := read(t, "../../status/page/testdata/flat.txt")
	_, rest, ok := strings.Cut(read(t, docs+"monitoring.md"), "w3m -dump http://127.0.0.1:9474\n\n")
	shown, _, ok2 := strings.Cut(rest, "```")
	if !ok || !ok2 || len(shown) < 500 || !strings.Contains(page, strings.TrimSpace(shown)) {
		t.Errorf("docs/monitoring.md shows another page:\n%s", shown)
	}
}
