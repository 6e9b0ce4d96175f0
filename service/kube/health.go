package kube

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"time"
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
	// Reads are of one object or of all of a kind, Watches are the starts of a
	// watch, and Writes are everything else.
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

// observer is the context key of the pointer that receives a request's transport error.
type observer struct{}

// observed returns a context. Its requests set *unanswered to the transport error, or to nil after an answer.
func observed(ctx context.Context, unanswered *error) context.Context {
	return context.WithValue(ctx, observer{}, unanswered)
}

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
