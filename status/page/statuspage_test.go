package page_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/bgp/bfd"
	"github.com/herald-vip/herald/election/advertisement"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/service/announce"
	"github.com/herald-vip/herald/service/kube"
	"github.com/herald-vip/herald/service/peering"
	"github.com/herald-vip/herald/speaker"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/status/eventlog"
	"github.com/herald-vip/herald/status/page"
	"github.com/herald-vip/herald/testenv/must"
)

var update = flag.Bool("update", false, "write the golden files anew")

// load reads a status that a speaker in the lab told of itself.
func load(t *testing.T, name string) admin.Status {
	t.Helper()
	f := must.Get[*os.File](t)(os.Open("testdata/" + name + ".json"))
	defer f.Close()
	var s admin.Status
	d := json.NewDecoder(f)
	d.DisallowUnknownFields()
	must.Do(t, d.Decode(&s))
	return s
}

func render(t *testing.T, s admin.Status, now time.Time) string {
	t.Helper()
	return renderAll(t, s, nil, now)
}

func renderAll(t *testing.T, s admin.Status, nodes *page.Nodes, now time.Time) string {
	t.Helper()
	var out bytes.Buffer
	must.Do(t, page.New().Write(&out, s, nodes, now))
	return out.String()
}

// A member without fresh advertisements counts as silent before votes are missing.
func TestSilentMember(t *testing.T) {
	s := load(t, "flat")
	member := func() string {
		page := render(t, s, time.Now())
		_, row, _ := strings.Cut(page, "<tr><td>m2<td>10.4.0.2:7946<td ")
		row, _, _ = strings.Cut(row, "</tr>")
		return row
	}
	if row := member(); !strings.Contains(row, ">alive<") {
		t.Fatalf("m2 is %q, want it alive", row)
	}
	s.Election.Offers = []admin.Offer{{MemberState: advertisement.MemberState{Member: "m2", TimedOut: true}}}
	if row := member(); !strings.Contains(row, ">silent<") {
		t.Errorf("m2 is %q, want it silent", row)
	}
}

// The page as HTML and as a terminal browser shows it.
func TestGolden(t *testing.T) {
	for _, name := range []string{"bgp", "flat", "services", "worker"} {
		s := load(t, name)
		now := s.Events[0].At.Add(time.Second)
		var nodes *page.Nodes
		if name == "services" {
			nodes = threeNodes(now)
		}
		page := renderAll(t, s, nodes, now)
		golden(t, name+".html", page)
		golden(t, name+".txt", dump(t, page))
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := "testdata/" + name
	if *update {
		must.Do(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want := must.Get[[]byte](t)(os.ReadFile(path))
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s is not what the page is now; if that is as it should be, run go test ./status/page -update:\n%s", path, diff)
	}
}

func dump(t *testing.T, page string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "w3m", "-dump", "-T", "text/html", "-I", "UTF-8", "-O", "UTF-8", "-cols", "132")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "LANG=C.UTF-8"}
	cmd.Stdin = strings.NewReader(page)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("w3m (is it installed? make test does it): %v", err)
	}
	return string(out)
}

// Text of a peer, a server or a file stays text on the page.
func TestEscapesEverything(t *testing.T) {
	const hostile = `<script>x</script><img src=x onerror=x>"'>&`
	var s admin.Status
	texts := fill(reflect.ValueOf(&s).Elem(), hostile)
	nodes := &page.Nodes{List: make([]v1alpha1.NodeStatus, 1)}
	texts += fill(reflect.ValueOf(&nodes.List[0].Status).Elem(), hostile)
	shows := renderAll(t, s, nodes, time.Now()) + renderAll(t, s, &page.Nodes{Unknown: hostile}, time.Now())
	root := must.Get[*html.Node](t)(html.Parse(strings.NewReader(shows)))
	shown := 0
	for n := range root.Descendants() {
		switch {
		case n.Type == html.TextNode:
			shown += strings.Count(n.Data, hostile)
		case n.Type == html.ElementNode && (n.Data == "script" || n.Data == "img"):
			t.Errorf("the page has a <%s>", n.Data)
		}
		for _, a := range n.Attr {
			if strings.HasPrefix(a.Key, "on") || a.Key == "src" {
				t.Errorf("the page has an attribute %s=%q", a.Key, a.Val)
			}
		}
	}
	if shown < texts/2 {
		t.Errorf("of %d texts only %d are shown", texts, shown)
	}
}

// fill sets every string within v, with one element in each list, and returns how many there are.
func fill(v reflect.Value, text string) int {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
		return 1
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return fill(v.Elem(), text)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		return fill(v.Index(0), text)
	case reflect.Struct:
		n := 0
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				n += fill(v.Field(i), text)
			}
		}
		return n
	}
	return 0
}

// What stands in the way is said, as `herald status` says it.
func TestTrouble(t *testing.T) {
	s := load(t, "flat")
	s.Draining, s.Realtime, s.Config.Error = "kernel upgrade", "no CAP_SYS_NICE", "herald.yaml:3:1: unknown field"
	s.VIPs[0].Error, s.VIPs[0].Restored, s.VIPs[0].Conflict = "no link has it", 4, "02:00:00:00:00:09"
	s.Checks[0].Warning = "certificate expires on 2026-12-01"
	s.Election.Problem, s.Election.Change, s.Election.Insecure = "the lists differ", "waits for m3", true
	s.Election.Exposed = "gossip.key has mode 0644"
	s.Election.Fence = "no nf_tables"
	s.Peers = []bgp.Session{{Name: "r1", State: "active", Reason: "connection refused", Advertised: make([]netip.Prefix, 9),
		BFD: &bfd.Status{State: bfd.Down, Reason: "no packet yet"}}}
	s.Services = &admin.Services{
		Kubernetes: admin.Kubernetes{Unconnected: "no such file", Health: kube.Health{Troubles: []kube.Trouble{{About: "nodes", Reason: "forbidden"}}}},
		Unpeered:   "no router ID", LeftOut: []peering.LeftOut{{Peer: "rack-a", Reason: "no Secret"}}, Counts: announce.Counts{Failing: 3}, Obstructed: 2,
		Pools: []admin.Pool{{PoolStatus: announce.PoolStatus{Name: "typo", Error: "no range"}}},
	}
	page := render(t, s, time.Now())
	for _, want := range []string{
		"NO CONNECTION TO KUBERNETES: no such file", "KUBERNETES DOES NOT ANSWER about nodes for –: forbidden", "SERVICES NOT KNOWN YET",
		"BGPPEERS NOT IN FORCE: no router ID", "BGPPEER NOT IN FORCE: rack-a: no Secret", "ROUTES REFUSED: 3", "ADDRESSES OBSTRUCTED on a flat layer 2: 2",
		"addresses given by another node", "<td>no range",
		"<title>(!) m1", ">Not ready<", "DRAINING: kernel upgrade", "NOT IN REAL TIME: no CAP_SYS_NICE", "<pre>herald.yaml:3:1: unknown field</pre>",
		"no link has it (put back 4×); ALSO USED BY 02:00:00:00:00:09", "Warning: certificate expires on 2026-12-01",
		"NO PART IN THE ELECTION: the lists differ", "ELECTORATE CHANGING: waits for m3", "INSECURE: ", "KEY EXPOSED: gossip.key has mode 0644", "NO FENCE: no nf_tables",
		"connection refused BFD: no packet yet", "… 9 in all",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in:\n%s", want, page)
		}
	}
	if page := render(t, admin.Status{}, time.Now()); strings.Contains(page, "<title>(!)") || strings.Contains(page, "Leases") {
		t.Errorf("an empty status:\n%s", page)
	}
}

// The colour of a withdrawn VIP depends on its holder.
func TestVIPMood(t *testing.T) {
	for _, c := range []struct {
		vip    admin.VIP
		holder string
		want   string
	}{
		{admin.VIP{Status: speaker.Status{Stage: "announced"}, State: "announced"}, "", "good"},
		{admin.VIP{Status: speaker.Status{Stage: "announced"}, State: "blocked"}, "", "bad"},
		{admin.VIP{Status: speaker.Status{Stage: "announced"}, State: "unsent"}, "", "bad"},
		{admin.VIP{Status: speaker.Status{Stage: "announced", Peers: []string{"r1", "r2"}}, State: "announced", Sent: []string{"r2"}}, "", "odd"},
		{admin.VIP{Status: speaker.Status{Stage: "announced", Error: "it is on this host twice"}, State: "announced"}, "", "odd"},
		{admin.VIP{Status: speaker.Status{Stage: "announced"}, State: "announced", Conflict: "x"}, "", "bad"},
		{admin.VIP{Status: speaker.Status{Stage: "lingering"}, State: "lingering"}, "", "odd"},
		{admin.VIP{Status: speaker.Status{Stage: "withdrawn"}, State: "withdrawn"}, "", "bad"},
		{admin.VIP{Status: speaker.Status{Stage: "withdrawn"}, State: "withdrawn"}, "m2", "idle"},
	} {
		s := admin.Status{VIPs: []admin.VIP{c.vip}, Election: &admin.Election{Leases: []admin.Lease{{LeaseStatus: lease.LeaseStatus{Holder: c.holder}}}}}
		want := fmt.Sprintf(`<td class=%q>%s`, c.want, c.vip.State)
		if page := render(t, s, time.Now()); !strings.Contains(page, want) {
			t.Errorf("%+v, held by %q: no %s", c.vip, c.holder, want)
		}
	}
}

func TestHandler(t *testing.T) {
	w := httptest.NewRecorder()
	page.New().Handler(func() admin.Status { return admin.Status{Node: "m1"} }, func() *page.Nodes { return nil }).
		ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "Herald on m1") {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
	for name, want := range map[string]string{
		"Content-Type":            "text/html; charset=utf-8",
		"Content-Security-Policy": "default-src 'none'",
		"X-Content-Type-Options":  "nosniff",
		"Cache-Control":           "no-store",
	} {
		if got := w.Header().Get(name); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// What there is no room for is said to be left out: rows of the picture, and events.
func TestLeftOut(t *testing.T) {
	var s admin.Status
	shows := func(want string, current bool) {
		t.Helper()
		if page := render(t, s, time.Now()); strings.Contains(page, want) != current {
			t.Errorf("with %d checks and %d events it shows %q: %t", len(s.Checks), len(s.Events), want, !current)
		}
	}
	for i := range 50 {
		s.Events = append(s.Events, eventlog.Event{What: fmt.Sprintf("event %d.", i)})
	}
	for range 30 {
		s.Checks = append(s.Checks, health.Verdict{Name: "a"})
	}
	shows(" more, for which there is no room", false)
	shows("event 49.", true)
	shows("the last 50 of", false)
	s.Checks, s.Events = append(s.Checks, s.Checks[:7]...), append(s.Events, eventlog.Event{What: "event 50."})
	shows("and 7 more, for which there is no room", true)
	shows("event 49.", true)
	shows("event 50.", false)
	shows("the last 50 of 51", true)
}

// threeNodes returns a healthy node, one in every kind of state, and one with an old report.
func threeNodes(now time.Time) *page.Nodes {
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }
	node := func(name string, told time.Duration, s v1alpha1.NodeState) v1alpha1.NodeStatus {
		at := ago(told)
		s.Version = "v0.1.0"
		return v1alpha1.NodeStatus{ObjectMeta: metav1.ObjectMeta{Name: name, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "herald.dev/node", Time: &at}}}, Status: s}
	}
	session := func(peer, state, reason string, since time.Duration) v1alpha1.NodeSession {
		return v1alpha1.NodeSession{Peer: peer, State: state, Reason: reason, Since: ago(since)}
	}
	vip := func(state, reason string, since time.Duration) []v1alpha1.NodeVIP {
		return []v1alpha1.NodeVIP{{Name: "control-plane", Address: "10.99.0.10", State: state, Reason: reason, Since: ago(since)}}
	}
	return &page.Nodes{
		List: []v1alpha1.NodeStatus{
			node("s", 5*time.Second, v1alpha1.NodeState{
				Sessions: []v1alpha1.NodeSession{session("10.0.1.254", "established", "", time.Minute), session("10.0.2.254", "established", "", time.Minute)},
				VIPs:     vip("announced", "apiserver healthy", time.Minute), Announced: 1, Services: v1alpha1.NodeServices{Announced: []string{"10.99.1.1"}},
			}),
			node("t", 3*time.Minute, v1alpha1.NodeState{
				Draining: "memory", Announced: 46, Held: 1,
				Sessions: []v1alpha1.NodeSession{session("10.0.1.254", "established", "", time.Hour), session("10.0.2.254", "down", "connection refused", 3*time.Minute)},
				VIPs:     vip("withdrawn", "draining: memory", 3*time.Minute),
				Services: v1alpha1.NodeServices{
					Announced: []string{"10.99.1.1", "10.99.1.4-10.99.1.9", "10.99.1.12", "10.99.1.16/28", "10.99.2.0/28", "10.99.3.0/29"}, Held: []string{"10.3.0.100"},
					Withdrawn: []v1alpha1.NodeWithdrawn{{Reason: "no ready IPv4 endpoint on any node", Addresses: []string{"10.99.1.2-10.99.1.3"}}},
				},
			}),
			node("u", time.Hour, v1alpha1.NodeState{
				Sessions: []v1alpha1.NodeSession{session("10.0.1.254", "established", "", 2*time.Hour)}, Announced: 1, Services: v1alpha1.NodeServices{Announced: []string{"10.99.1.1"}},
			}),
		},
		Ready: map[string]bool{"s": true, "t": true, "u": false},
	}
}

// TestNodes: in place of nodes that are not known is why, and where none are asked for is nothing.
func TestNodes(t *testing.T) {
	for _, tt := range []struct {
		name          string
		nodes         *page.Nodes
		present, lack string
	}{
		{"no services section", nil, "Last events", "Nodes"},
		{"the API is away", &page.Nodes{Unknown: "connection refused"}, `<p class="odd">NODES NOT KNOWN: connection refused</p>`, "Sessions"},
		{"nobody tells", new(page.Nodes), `<th scope="col">Why</tr>
<tr><td colspan="6">none</tr>`, "NOT KNOWN"},
		{"all is well", &page.Nodes{List: threeNodes(time.Now()).List[:1]}, `<div class="good">10.0.2.254 established 1m0s</div>`, "NOT READY"},
		{"gone", &page.Nodes{List: threeNodes(time.Now()).List, Ready: map[string]bool{"s": true, "t": true}}, `<strong class="bad">GONE, SAYS KUBERNETES`, "NOT READY"},
		{"not ready", threeNodes(time.Now()), `<tr class="stale"><td class="bad">u<td>`, "NOT KNOWN"},
	} {
		if page := renderAll(t, admin.Status{}, tt.nodes, time.Now()); !strings.Contains(page, tt.present) || strings.Contains(page, tt.lack) {
			t.Errorf("%s: want %q and no %q in:\n%s", tt.name, tt.present, tt.lack, page)
		}
	}
}
