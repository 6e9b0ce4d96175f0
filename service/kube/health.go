package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/version"

	"github.com/herald-vip/herald/internal/wake"
)

// Health tells whether the API server answers. Its JSON is part of the output of `herald status -o json`.
type Health struct {
	// Troubles are the present failures, sorted by About.
	Troubles []Trouble `json:"troubles,omitempty"`
	// Answered is the time of the last answer to a request, errors included; zero means never. Events of watches do not count.
	Answered time.Time `json:"answered,omitzero"`
	Requests
}

// Requests counts requests by purpose.
type Requests struct {
	// Reads are of one object or of all of a kind, Watches are the starts of a watch, and Writes are everything else.
	Reads   uint64 `json:"reads"`
	Watches uint64 `json:"watches"`
	Writes  uint64 `json:"writes"`
	// Failed counts the requests that were not answered, or with an error.
	Failed uint64 `json:"failed"`
}

// Trouble is a failure of requests that are tried again.
type Trouble struct {
	// About is the subject of the request: a kind in the plural, or the name of an object.
	About string `json:"about"`
	// Reason describes the failure for an administrator.
	Reason string `json:"reason"`
	// Since is when it began.
	Since time.Time `json:"since"`
}

// Health returns the server's health.
func (c *Cluster) Health() Health {
	c.said.mu.Lock()
	out := Health{Troubles: slices.Collect(maps.Values(c.said.words))}
	c.said.mu.Unlock()
	slices.SortFunc(out.Troubles, func(a, b Trouble) int { return cmp.Compare(a.About, b.About) })
	out.Requests = Requests{
		Reads: c.requests.reads.Load(), Watches: c.requests.watches.Load(), Writes: c.requests.writes.Load(), Failed: c.requests.failed.Load(),
	}
	if at := c.requests.answered.Load(); at != 0 {
		out.Answered = time.UnixMilli(at)
	}
	return out
}

// observer is the context key of the pointer that receives a request's transport error, or nil after an answer.
type observer struct{}

// counter counts the requests that pass through it.
type counter struct {
	next                           http.RoundTripper
	reads, watches, writes, failed atomic.Uint64
	answered                       atomic.Int64 // in milliseconds of Unix time
}

// RoundTrip implements [http.RoundTripper].
func (c *counter) RoundTrip(r *http.Request) (*http.Response, error) {
	switch {
	case r.Method != http.MethodGet:
		c.writes.Add(1)
	case r.URL.Query().Get("watch") == "true":
		c.watches.Add(1)
	default:
		c.reads.Add(1)
	}
	resp, err := c.next.RoundTrip(r)
	if unanswered, ok := r.Context().Value(observer{}).(*error); ok {
		*unanswered = err
	}
	if err == nil {
		c.answered.Store(time.Now().UnixMilli())
	}
	if err != nil || resp.StatusCode >= http.StatusBadRequest {
		c.failed.Add(1)
	}
	return resp, err
}

// WrappedRoundTripper gives client-go access to the wrapped transport.
func (c *counter) WrappedRoundTripper() http.RoundTripper { return c.next }

// oldest is the first minor version of Kubernetes 1 with all features that Herald uses:
// CEL functions for addresses in validation rules, and ipMode of a Service.
const oldest = 31

// patience is how long a failure must last before it is logged: a restarting server
// returns many different errors for a while.
const patience = 3 * time.Second

// trouble logs lasting failures of repeated requests: each reason once, even if several
// kinds of requests have it, and one line when all are over.
type trouble struct {
	log *slog.Logger
	*said
}

// said is the present failures of requests.
type said struct {
	mu     sync.Mutex
	words  map[string]Trouble   // by About
	since  map[string]time.Time // start of the present reason, by About
	logged map[string]bool      // by reason
}

func newSaid() *said {
	return &said{words: make(map[string]Trouble), since: make(map[string]time.Time), logged: make(map[string]bool)}
}

// trouble returns a trouble for requests of c. [Cluster.Health] reports the same failures.
func (c *Cluster) trouble(log *slog.Logger) *trouble { return &trouble{log, c.said} }

func (t *trouble) note(ctx context.Context, about string, err error) {
	if errors.Is(err, context.Canceled) || ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	words := ""
	if err != nil {
		words = explain(about, err)
	}
	switch changed, over := t.replace(time.Now(), about, words); {
	case changed:
		t.log.Warn("requests to the Kubernetes API fail; retrying", "about", about, "reason", words)
	case over:
		t.log.Info("the Kubernetes API answers again", "about", about)
	}
}

// replace records the reason of a failure at the time now; an empty one means success. changed
// reports whether to log it, over whether all logged failures have ended.
func (s *said) replace(now time.Time, about, words string) (changed, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, troubled := s.words[about]
	if before.Reason != words {
		s.since[about] = now
	}
	if words == "" {
		delete(s.words, about)
		delete(s.since, about)
	} else {
		if !troubled {
			before.Since = now
		}
		s.words[about] = Trouble{About: about, Reason: words, Since: before.Since}
		if changed = !s.logged[words] && now.Sub(s.since[about]) >= patience; changed {
			s.logged[words] = true
		}
	}
	known := len(s.logged)
	still := make(map[string]bool)
	for _, trouble := range s.words {
		still[trouble.Reason] = true
	}
	maps.DeleteFunc(s.logged, func(words string, _ bool) bool { return !still[words] })
	return changed, known > 0 && len(s.logged) == 0
}

// explain describes an error of the server for an administrator.
func explain(resource string, err error) string {
	switch {
	case apierrors.IsNotFound(err) && slices.Contains([]string{"addresspools", "bgppeers", nodeStatuses, "tenants", "tenantnodes", "tcploadbalancers", "httploadbalancers"}, resource):
		return fmt.Sprintf("the server does not know %s: apply Herald's CRDs", resource)
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("the server forbids it: give Herald's service account the rights of its manifests (%v)", err)
	case apierrors.IsUnauthorized(err):
		return "the server rejects the credentials: check the kubeconfig, or the pod's service account"
	}
	return lasting(err).Error()
}

// lasting returns an error without the parts that differ at each repetition: the URL of
// the request, which contains a time, and the source port.
func lasting(err error) error {
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err
	}
	var op *net.OpError
	if errors.As(err, &op) {
		plain := *op
		plain.Source = nil
		err = &plain
	}
	return err
}

// awaitVersion waits for a server that is new enough; false if ctx ends before.
func (c *Cluster) awaitVersion(ctx context.Context, t *trouble) bool {
	for {
		err := c.checkVersion(ctx)
		t.note(ctx, "version", err)
		if err == nil || !wake.Pause(ctx, time.Second) {
			return err == nil
		}
	}
}

// checkVersion returns an error if the server is too old or does not answer.
func (c *Cluster) checkVersion(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	answer, err := c.core.Get().AbsPath("/version").Do(ctx).Raw()
	if err != nil {
		return err
	}
	return checkVersion(answer)
}

// checkVersion returns an error if the answer to /version names a version that is too old.
func checkVersion(answer []byte) error {
	var v version.Info
	if err := json.Unmarshal(answer, &v); err != nil {
		return fmt.Errorf("the server's version: %w", err)
	}
	major, err := strconv.Atoi(v.Major)
	if err != nil {
		return fmt.Errorf("the server's version is %q: want a number", v.Major)
	}
	minor, err := strconv.Atoi(strings.TrimRight(v.Minor, "+")) // some vendors append +
	if err != nil {
		return fmt.Errorf("the server's version is 1 and %q: want a number", v.Minor)
	}
	if major == 1 && minor < oldest || major < 1 {
		return fmt.Errorf("the server is Kubernetes %d.%d: Service VIPs need 1.%d or later", major, minor, oldest)
	}
	return nil
}
