package kube

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/testenv/must"
)

// stub is a small API server: it lists and watches the objects of a test.
type stub struct {
	http    *httptest.Server
	mu      sync.Mutex
	version string         // of Kubernetes
	objects map[string]any // by path
	rv      int
	refuse  map[string]int // error status by path of the collection
	watches map[chan event]string
	asked   []string // requested lists, with the version
	refused int      // number of refused requests
}

// hangUp in place of an error status closes the connection.
const hangUp = -1

type event struct {
	Type   string `json:"type"`
	Object any    `json:"object"`
}

// newStub returns a stub of a minor version such as 36, and a connection to it.
func newStub(t *testing.T, minor string) (*stub, *Cluster) {
	t.Helper()
	s := &stub{version: minor, objects: make(map[string]any), refuse: make(map[string]int), watches: make(map[chan event]string)}
	s.http = httptest.NewServer(s)
	t.Cleanup(s.http.Close)
	t.Cleanup(s.cut)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	must.Do(t, os.WriteFile(kubeconfig, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, clusters: [{name: a, cluster: {server: %q}}], contexts: [{name: a, context: {cluster: a}}], current-context: a}`, s.http.URL), 0o600))
	c := must.Get[*Cluster](t)(Connect(kubeconfig, "test"))
	return s, c
}

// put stores an object at the path of its collection, as a new version.
func (s *stub) put(collection string, o Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rv++
	o.SetResourceVersion(strconv.Itoa(s.rv))
	path, kind := collection+"/"+o.GetName(), "ADDED"
	if s.objects[path] != nil {
		kind = "MODIFIED"
	}
	s.objects[path] = o
	s.tell(collection, event{kind, o})
}

func (s *stub) remove(collection, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rv++
	o := s.objects[collection+"/"+name]
	delete(s.objects, collection+"/"+name)
	s.tell(collection, event{"DELETED", o})
}

func (s *stub) tell(collection string, e event) {
	for w, watched := range s.watches {
		if watched == collection {
			w <- e
		}
	}
}

// cut ends all watches.
func (s *stub) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watches {
		close(w)
		delete(s.watches, w)
	}
}

// set changes how the stub answers.
func (s *stub) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// vain counts the refused requests and the requests for the version.
func (s *stub) vain() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

// gone is the answer to a watch from an expired version.
var gone = metav1.Status{
	TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
	Reason: metav1.StatusReasonExpired, Code: http.StatusGone, Message: "too old resource version",
}

// ServeHTTP answers requests to list and to watch.
func (s *stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	w.Header().Set("Content-Type", "application/json")
	query := r.URL.Query()
	switch status := s.refuse[r.URL.Path]; {
	case r.URL.Path == "/version":
		fmt.Fprintf(w, `{"major": "1", "minor": %q}`, s.version)
		s.refused++
		s.mu.Unlock()
	case status == hangUp:
		s.mu.Unlock()
		panic(http.ErrAbortHandler)
	case status != 0:
		s.refused++
		w.WriteHeader(status)
		s.mu.Unlock()
	case query.Get("sendInitialEvents") != "": // like a server with an old etcd
		w.WriteHeader(http.StatusUnprocessableEntity)
		s.mu.Unlock()
	case query.Get("watch") != "":
		s.watch(w, r)
	default:
		s.asked = append(s.asked, fmt.Sprintf("%s from version %q", r.URL.Path, query.Get("resourceVersion")))
		var items []any
		for path, o := range s.objects {
			if collection, _ := filepath.Split(path); strings.TrimSuffix(collection, "/") == r.URL.Path {
				items = append(items, o)
			}
		}
		kind := map[string][2]string{
			"addresspools": {"AddressPool", "herald.dev/v1alpha1"}, "nodestatuses": {"NodeStatus", "herald.dev/v1alpha1"},
			"tenants": {"Tenant", "herald.dev/v1alpha1"}, "ingresses": {"Ingress", "networking.k8s.io/v1"},
			"nodes": {"Node", "v1"}, "secrets": {"Secret", "v1"},
		}[filepath.Base(r.URL.Path)]
		err := json.NewEncoder(w).Encode(map[string]any{
			"kind": kind[0] + "List", "apiVersion": kind[1], "metadata": map[string]string{"resourceVersion": strconv.Itoa(s.rv)}, "items": items,
		})
		s.mu.Unlock()
		if err != nil {
			panic(err)
		}
	}
}

// watch serves a watch. The caller holds the lock; watch releases it.
func (s *stub) watch(w http.ResponseWriter, r *http.Request) {
	stream := make(chan event, 100)
	if r.URL.Query().Get("resourceVersion") != strconv.Itoa(s.rv) {
		stream <- event{"ERROR", gone} // it has no history
	}
	s.watches[stream] = r.URL.Path
	s.mu.Unlock()
	w.(http.Flusher).Flush()
	for {
		select {
		case e, ok := <-stream:
			if !ok {
				return
			}
			if err := json.NewEncoder(w).Encode(e); err != nil {
				return
			}
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.watches, stream)
			return
		}
	}
}

// journal collects the reasons in a log.
type journal struct {
	mu    sync.Mutex
	lines []string
}

// Write takes a line of JSON.
func (l *journal) Write(line []byte) (int, error) {
	var entry struct{ Msg, About, Reason string }
	if err := json.Unmarshal(line, &entry); err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, strings.TrimRight(entry.About+": "+entry.Reason, ": "))
	return len(line), nil
}

func (l *journal) log() *slog.Logger { return slog.New(slog.NewJSONHandler(l, nil)) }

func (l *journal) has() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}
