//go:build e2e

package services

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/services"
)

const states = "/apis/herald.dev/v1alpha1/nodestatuses"

// TestNodeStatus reads the reports of three nodes, and the resulting condition of a
// Service, while speakers stop, are killed and return.
func TestNodeStatus(t *testing.T) {
	b := startBalancers(t, nil)
	vip := b.led(t, balancer("told"), "n1")
	for _, node := range b.Members() {
		b.tells(t, node, func(s v1alpha1.NodeState) error {
			return site.ErrorIf(s.Established != "1/1" || s.Up != "0/0" || s.Announced != 1 || !slices.Equal(s.Services.Announced, []string{vip.String()}) ||
				s.Draining != "" || s.Sessions[0].State != "established" || s.Sessions[0].Peer != services.RouterAddress || s.Sessions[0].Since.IsZero(), "told is %+v", s)
		})
	}
	b.says(t, "told", "True", "announced by n1, n2 and n3")
	table, err := b.API.Table(t.Context(), states)
	site.Must(t, err)
	var columns []string
	for _, c := range table.ColumnDefinitions {
		columns = append(columns, c.Name)
	}
	if got, want := fmt.Sprint(columns, table.Rows[1].Cells[:6]), "[Name Sessions VIPs Announced Held Draining Version Age] [n2 1/1 0/0 1 0 ]"; got != want {
		t.Errorf("kubectl shows %s, want %s", got, want)
	}

	t.Run("no writes at rest", func(t *testing.T) {
		b.rests(t, 12*time.Second) // twice the shortest pause, and more than "not announced" is delayed
	})
	t.Run("every node shows all", func(t *testing.T) { b.testPage(t, vip.String()) })
	t.Run("a speaker stops", func(t *testing.T) {
		site.Must(t, site.Stop(t, b.Speaker("n3")))
		b.tells(t, "n3", func(s v1alpha1.NodeState) error {
			return site.ErrorIf(s.Announced != 0 || s.Draining != "herald is stopping" || len(s.Services.Announced) > 0, "told is %+v", s)
		})
		b.shows(t, "n2", "<td>n3<td>", ">DRAINING: herald is stopping<")
		b.says(t, "told", "True", "announced by n1 and n2")
		site.Start(t, b.Speaker("n3"))
		b.says(t, "told", "True", "announced by n1, n2 and n3")
	})
	t.Run("a node is silent", func(t *testing.T) {
		ready := func(status string) {
			b.patch(t, services.Nodes+"/n2/status", `{"status": {"conditions": [{"type": "Ready", "status": "`+status+`"}]}}`)
		}
		site.Kill(t, b.Speaker("n2"))
		ready("Unknown")
		b.says(t, "told", "True", "announced by n1 and n3")
		b.shows(t, "n1", `<td class="bad">n2<td>`, "NOT READY")
		site.Start(t, b.Speaker("n2"))
		ready("True")
		b.says(t, "told", "True", "announced by n1, n2 and n3")
	})
	t.Run("there is no endpoint", func(t *testing.T) {
		site.Must(t, b.SetEndpoint(t.Context(), "told", "n1", services.NotReady()))
		b.says(t, "told", "False", "announced by no node: no ready IPv4 endpoint on any node (n1, n2 and n3)")
		site.Must(t, b.SetEndpoint(t.Context(), "told", "n1", services.Ready()))
		b.says(t, "told", "True", "announced by n1, n2 and n3")
	})
	t.Run("a report is deleted", func(t *testing.T) {
		site.Must(t, b.API.Delete(t.Context(), states+"/n1"))
		b.tells(t, "n1", func(s v1alpha1.NodeState) error { return site.ErrorIf(s.Announced != 1, "told is %+v", s) })
	})
	t.Run("a report is changed by others", func(t *testing.T) {
		for _, edit := range []string{
			`{"announced": 0, "services": {"announced": null}}`,
			`{"draining": "not by Herald", "vips": [{"name": "a", "address": "10.0.0.1", "state": "announced"}], "services": {"held": ["10.0.0.1"], "more": 7}}`,
			`null`,
		} {
			b.patch(t, states+"/n3", `{"status": `+edit+`}`)
			b.tells(t, "n3", func(s v1alpha1.NodeState) error {
				return site.ErrorIf(s.Announced != 1 || !slices.Equal(s.Services.Announced, []string{vip.String()}) || s.Draining != "" ||
					len(s.VIPs) > 0 || len(s.Services.Held) > 0 || s.Services.More > 0, "after %s the report is %+v", edit, s)
			})
		}
		b.rests(t, 12*time.Second)
	})
	site.Eventually(t, site.Soon, func() error {
		said := eventsOf(t, b.API, "told")
		for _, want := range []string{
			"Normal AnnouncersMoved: announced by n1 and n2; before: announced by n1, n2 and n3",
			"Warning NotAnnounced: announced by no node: no ready IPv4 endpoint on any node (n1, n2 and n3)",
		} {
			if !slices.Contains(said, want) {
				return fmt.Errorf("events %q, want %q among them", said, want)
			}
		}
		return nil
	})
	t.Run("a holder stops", func(t *testing.T) { b.testHolder(t) })
}

// testPage reads the page while the API server answers, hangs, is gone, and is back.
func (b *balancers) testPage(t *testing.T, vip string) {
	for _, node := range b.Members() {
		b.shows(t, node, "<td>"+node+` <span class="faint">this node</span><td>`)
		_, table, _ := strings.Cut(b.page(t, node), `<h2 id="nodes">`)
		for _, member := range b.Members() {
			_, row, _ := strings.Cut(table, "<tr><td>"+member)
			row, _, _ = strings.Cut(row, "</tr>")
			for _, want := range []string{`<div class="good">` + services.RouterAddress + " established ", "<div>1 announced: " + vip + "</div>"} {
				if !strings.Contains(row, want) {
					t.Errorf("%s shows no %q of %s: %s", node, want, member, row)
				}
			}
		}
	}
	reads := func() uint64 {
		s, err := b.admin("n1").Status(t.Context())
		site.Must(t, err)
		return s.Services.Kubernetes.Reads
	}
	before, began := reads(), time.Now()
	for range 20 {
		b.page(t, "n1")
	}
	if n, most := reads()-before, uint64(time.Since(began)/(5*time.Second))+1; n > most {
		t.Errorf("20 views in %v took %d requests, want %d at most", time.Since(began), n, most)
	}
	server := b.Node("api-apiserver")
	site.Freeze(t, server)
	b.shows(t, "n1", ">NODES NOT KNOWN: context deadline exceeded<")
	site.Thaw(t, server)
	site.Kill(t, server)
	b.shows(t, "n1", ">NODES NOT KNOWN: ", "connection refused<")
	site.Start(t, server)
	b.answering(t)
	b.shows(t, "n1", "<td>n3<td>")
}

// page returns the status page of a node.
func (b *balancers) page(t *testing.T, node string) string {
	t.Helper()
	_, text := site.Fetch(t, b.Speaker(node), "http://127.0.0.1:9474/")
	return text
}

// shows waits until a node's page contains all of these.
func (b *balancers) shows(t *testing.T, node string, texts ...string) {
	t.Helper()
	site.Eventually(t, 2*site.Soon, func() error {
		page := b.page(t, node)
		for _, text := range texts {
			if !strings.Contains(page, text) {
				return fmt.Errorf("%s shows no %q: %s", node, text, page)
			}
		}
		return nil
	})
}

// testHolder stops the holder of an address on a flat layer 2.
func (b *balancers) testHolder(t *testing.T) {
	b.create(t, balancer("flat", annotated("pool", services.PoolARP)), "n1")
	b.address(t, "flat")
	holder := ""
	site.Eventually(t, 2*site.Soon, func() error {
		_, message := b.said(t, "flat")
		holder = strings.TrimPrefix(message, "held by ")
		return site.ErrorIf(!slices.Contains(b.Members(), holder), "the message is %q", message)
	})
	b.tells(t, holder, func(s v1alpha1.NodeState) error { return site.ErrorIf(s.Held != 1, "told is %+v", s) })
	site.Must(t, site.Stop(t, b.Speaker(holder)))
	site.Eventually(t, 2*site.Soon, func() error {
		_, message := b.said(t, "flat")
		next, held := strings.CutPrefix(message, "held by ")
		return site.ErrorIf(!held || next == holder, "the message is %q", message)
	})
	site.Start(t, b.Speaker(holder))
}

// tells waits until check accepts a node's report.
func (b *balancers) tells(t *testing.T, node string, check func(v1alpha1.NodeState) error) {
	t.Helper()
	site.Eventually(t, 2*site.Soon, func() error {
		var s v1alpha1.NodeStatus
		if err := b.API.Get(t.Context(), states+"/"+node, &s); err != nil {
			return err
		}
		if len(s.OwnerReferences) != 1 || s.OwnerReferences[0].Kind != "Node" || s.OwnerReferences[0].Name != node {
			return fmt.Errorf("the owners are %+v, want the node", s.OwnerReferences)
		}
		return check(s.Status)
	})
}

// said returns the status and the message of the condition about a Service's announcers.
func (b *balancers) said(t *testing.T, name string) (status, message string) {
	t.Helper()
	for _, c := range b.get(t, name).Status.Conditions {
		if c.Type == service.ConditionAnnounced {
			return string(c.Status), c.Message
		}
	}
	return "", ""
}

// says waits until they are as given.
func (b *balancers) says(t *testing.T, name, status, message string) {
	t.Helper()
	site.Eventually(t, 2*site.Soon, func() error {
		s, m := b.said(t, name)
		return site.ErrorIf(s != status || m != message, "the condition of %s is %s: %s; want %s: %s", name, s, m, status, message)
	})
}

// rests waits until nothing is written for that long. A repeated write never comes to rest.
func (b *balancers) rests(t *testing.T, long time.Duration) {
	t.Helper()
	site.Eventually(t, time.Minute+long, func() error {
		before := len(b.allWrites(t))
		time.Sleep(long)
		after := b.allWrites(t)
		return site.ErrorIf(len(after) > before, "written was %s", after[before:])
	})
}

// allWrites returns the announcer's write requests, except for Leases.
func (b *balancers) allWrites(t *testing.T) (out []string) {
	t.Helper()
	for line := range strings.Lines(site.ReadFile(t, filepath.Join(b.dir, "api", "audit.log"))) {
		if !strings.Contains(line, `"resource":"leases"`) && (strings.Contains(line, `"verb":"patch"`) || strings.Contains(line, `"verb":"create"`)) {
			out = append(out, line)
		}
	}
	return out
}

// TestNodeWritesItsOwn checks the policy of the manifests: the token of a pod writes
// only its own node's report.
func TestNodeWritesItsOwn(t *testing.T) {
	k := site.StartAPIServer(t)
	for path, object := range site.AccountObjects(t) {
		k.Apply(t, path, string(object))
	}
	for _, node := range []string{"n1", "n2"} {
		k.Apply(t, "/api/v1/nodes", "{apiVersion: v1, kind: Node, metadata: {name: "+node+"}}")
	}
	const account = "/api/v1/namespaces/herald-system/"
	k.Apply(t, account+"pods", "{apiVersion: v1, kind: Pod, metadata: {name: herald-a}, spec: {nodeName: n1, serviceAccountName: herald, automountServiceAccountToken: false, containers: [{name: herald, image: herald}]}}")
	var token struct{ Status struct{ Token string } }
	k.Do(t, http.MethodPost, account+"serviceaccounts/herald/token", []byte(
		`{apiVersion: authentication.k8s.io/v1, kind: TokenRequest, spec: {boundObjectRef: {apiVersion: v1, kind: Pod, name: herald-a}}}`), &token)
	c := &rest.Config{Host: fmt.Sprintf("https://127.0.0.1:%d", k.Port), BearerToken: token.Status.Token}
	c.CAFile, c.ServerName = filepath.Join(k.Pki.Dir, "ca.crt"), "kubernetes"
	pod := site.Get[*services.API](t)(services.NewAPI(c))
	t.Cleanup(pod.Close)
	k.Pki.IssueAccount(t)
	master := k.As(t, "services")

	told := func(node string) []byte {
		return []byte("{apiVersion: herald.dev/v1alpha1, kind: NodeStatus, metadata: {name: " + node + "}, status: {announced: 0, held: 0}}")
	}
	site.Eventually(t, site.Soon, func() error { // a policy takes a moment to be in force
		status, answer, err := pod.Ask(t.Context(), http.MethodPost, states+"?dryRun=All", told("n2"))
		site.Must(t, err)
		return site.ErrorIf(status != http.StatusUnprocessableEntity || !strings.Contains(answer, "want the NodeStatus of the node that the pod is on"), "%d %s", status, answer)
	})
	for _, test := range []struct {
		who          *services.API
		method, path string
		body         []byte
		want         int
	}{
		{pod, http.MethodPost, states, told("n1"), http.StatusCreated},
		{pod, http.MethodPatch, states + "/n1", []byte(`{"status": {"draining": "a"}}`), http.StatusOK},
		{master, http.MethodPost, states, told("n2"), http.StatusCreated}, // a client certificate has no node
		{pod, http.MethodPatch, states + "/n2", []byte(`{"status": {"draining": "a"}}`), http.StatusUnprocessableEntity},
		{pod, http.MethodDelete, states + "/n2", nil, http.StatusForbidden},
		{pod, http.MethodDelete, states + "/n1", nil, http.StatusForbidden},
	} {
		site.Asked(t, test.who, test.method, test.path, test.body, test.want)
	}
}

// cost is the consumption of five speakers: memory in bytes, and processor time in
// clock ticks, until all Services are announced (grow) and then at rest. It includes
// the duration of the former, and how often etcd changed meanwhile.
type cost struct {
	memory, grow, rest, revisions int
	took                          time.Duration
}

// hour extrapolates the processor time to the hour when the Services come, with the
// consumption at rest for the remainder.
func (c cost) hour(rest time.Duration) int {
	return c.grow + int(float64(c.rest)*(time.Hour-c.took).Seconds()/rest.Seconds())
}

// TestNodeStatusCost announces ten thousand Services from five nodes, nightly, and a
// few otherwise, with and without NodeStatus in the API server. The reports cost at
// most a tenth of memory, and two more writes per Service. Nightly they also cost at
// most a tenth of processor time, at rest and in the hour when the Services come; with
// few Services, starting dominates. At rest nothing is written.
func TestNodeStatusCost(t *testing.T) {
	count, rest := 200, 6*time.Second
	if site.Nightly() {
		count, rest = 10000, 10*time.Minute // Go collects garbage every two minutes: one collection must not matter
	}
	var with, without cost
	t.Run("told", func(t *testing.T) { with = costOf(t, count, rest, true, 0) })
	t.Run("untold", func(t *testing.T) { without = costOf(t, count, rest, false, with.took) })
	t.Logf("%d Services on five nodes: without reports %+v, in an hour %d, with reports %+v, in an hour %d", count, without, without.hour(rest), with, with.hour(rest))
	if with.memory > without.memory*11/10 {
		t.Errorf("the memory of five speakers grew from %d to %d", without.memory, with.memory)
	}
	if more := with.revisions - without.revisions; more > 2*count {
		t.Errorf("%d writes more for %d Services", more, count)
	}
	if !site.Nightly() {
		return
	}
	if with.rest > without.rest*11/10 {
		t.Errorf("the processor time of five speakers at rest grew from %d to %d", without.rest, with.rest)
	}
	if w, wo := with.hour(rest), without.hour(rest); w > wo*11/10 {
		t.Errorf("the processor time of five speakers in the hour when Services come grew from %d to %d", wo, w)
	}
}

// costOf measures the cost of announcing all Services, for at least the duration
// least, and of the rest afterwards.
func costOf(t *testing.T, count int, rest time.Duration, told bool, least time.Duration) (c cost) {
	crds := t.TempDir()
	for _, file := range site.CrdFiles(t) {
		if told || !strings.Contains(file, "nodestatuses") {
			site.Must(t, os.WriteFile(filepath.Join(crds, filepath.Base(file)), []byte(site.ReadFile(t, file)), 0o600))
		}
	}
	dir := t.TempDir()
	l, err := services.Start(t.Context(), services.Options{
		Nodes: 5, Dir: dir, Announcer: &services.Herald{Binary: site.Part(t, "HERALD"), CRDs: crds},
		APIServer: site.Part(t, "KUBE_APISERVER"), Etcd: site.Part(t, "ETCD"), Testenv: site.Part(t, "TESTENV"), Log: site.Log(t),
	})
	site.Must(t, err)
	defer func() { site.Must(t, l.Close()) }()
	b := &balancers{Lab: l, dir: dir}
	start, began := time.Now(), b.ticks(t)
	c.revisions = -b.revision(t)
	var list []services.Service
	for i := range count {
		list = append(list, services.Service{Name: fmt.Sprintf("s%05d", i), Pool: services.PoolBGP, Endpoints: b.Members()})
	}
	site.Must(t, b.Create(t.Context(), list...))
	site.Eventually(t, 10*time.Minute, func() error {
		time.Sleep(time.Second) // the list is long
		var list corev1.ServiceList
		site.Must(t, b.API.Get(t.Context(), services.Services, &list))
		lacks := count
		for _, s := range list.Items {
			said := !told
			for _, c := range s.Status.Conditions {
				said = said || c.Type == service.ConditionAnnounced && c.Message == "announced by n1, n2, n3, n4 and n5"
			}
			if len(addressesOf(&s)) > 0 && said {
				lacks--
			}
		}
		return site.ErrorIf(lacks > 0, "%d Services lack something", lacks)
	})
	if told { // otherwise reports have no place, which is retried
		b.rests(t, 6*time.Second)
	}
	time.Sleep(least - time.Since(start))
	c.took, c.grow = time.Since(start), b.ticks(t)-began
	c.revisions += b.revision(t)
	began = b.ticks(t)
	before := len(b.allWrites(t))
	time.Sleep(rest)
	c.rest = b.ticks(t) - began
	if after := b.allWrites(t); told && len(after) > before {
		t.Errorf("written at rest: %s", after[before:])
	}
	for _, node := range b.Members() {
		c.memory += site.Memory(t, b.Speaker(node).Daemon("herald").Pid(), "VmRSS")
	}
	return c
}

// revision returns how often etcd has changed.
func (b *balancers) revision(t *testing.T) int {
	t.Helper()
	var list corev1.ServiceList
	site.Must(t, b.API.Get(t.Context(), services.Services, &list))
	n := site.Get[int](t)(strconv.Atoi(list.ResourceVersion))
	return n
}

// ticks returns the processor time of all speakers.
func (b *balancers) ticks(t *testing.T) (sum int) {
	t.Helper()
	for _, node := range b.Members() {
		fields := strings.Fields(site.ReadFile(t, fmt.Sprintf("/proc/%d/stat", b.Speaker(node).Daemon("herald").Pid())))
		for _, field := range fields[13:15] {
			n := site.Get[int](t)(strconv.Atoi(field))
			sum += n
		}
	}
	return sum
}
