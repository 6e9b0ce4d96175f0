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

// Health is how the API server answers.
type Health struct {
	// Troubles are what goes wrong now, by what is requested.
	Troubles []Trouble
	// Requests counts what was sent.
	Requests Requests
	// Answered is when the last request was answered, in whatever way; what comes by
	// a watch is none. Zero is never.
	Answered time.Time
}

// Requests counts requests by what they are for.
type Requests struct {
	// Reads are of one object or of all of a kind, Watches are the starts of a
	// watch, and Writes are everything else.
	Reads, Watches, Writes uint64
	// Failed are those of them that were not answered, or with an error.
	Failed uint64
}

// Trouble is what goes wrong with requests that are tried again.
type Trouble struct {
	// About is what was requested: a kind in the plural, or the name of an object.
	About string
	// Reason says what is wrong, for an administrator.
	Reason string
	// Since is when it began.
	Since time.Time
}

// Health tells how the server answers.
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

// observer is the key of where a request tells why it was not answered.
type observer struct{}

// observed has requests set unanswered to why they were not, and to nil if they were.
func observed(ctx context.Context, unanswered *error) context.Context {
	return context.WithValue(ctx, observer{}, unanswered)
}

// counter counts the requests that pass it.
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

// WrappedRoundTripper lets client-go find what is behind it.
func (c *counter) WrappedRoundTripper() http.RoundTripper { return c.next }
