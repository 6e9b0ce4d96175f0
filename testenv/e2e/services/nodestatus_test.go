//go:build e2e

package services

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
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
	b := startBalancers(t)
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
		var list corev1.EventList
		site.Must(t, b.API.Get(t.Context(), "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name=told", &list))
		var said []string
		for _, e := range list.Items {
			said = append(said, fmt.Sprintf("%s %s: %s", e.Type, e.Reason, e.Message))
		}
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
	client := http.Client{Transport: &http.Transport{DialContext: b.Speaker(node).DialContext, DisableKeepAlives: true}, Timeout: site.Soon}
	response, err := client.Get("http://127.0.0.1:9474/")
	site.Must(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	site.Must(t, err)
	return string(body)
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
	pod, err := services.NewAPI(c)
	site.Must(t, err)
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
		status, answer, err := test.who.Ask(t.Context(), test.method, test.path, test.body)
		site.Must(t, err)
		if status != test.want {
			t.Errorf("%s %s: %d, want %d: %s", test.method, test.path, status, test.want, answer)
		}
	}
}
