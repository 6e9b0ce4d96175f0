// Package page shows a speaker's status in a browser, also in a terminal: one read-only page of plain HTML that
// refreshes itself without scripts.
package page

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/bgp/bfd"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/service/report"
	"github.com/herald-vip/herald/speaker"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/status/eventlog"
)

//go:embed page.html
var page string

// policy allows the page its own style sheet and nothing else, and keeps it out of other sites' frames.
const policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Nodes are the reports of a cluster's nodes in its API.
type Nodes struct {
	List []v1alpha1.NodeStatus
	// Ready maps each Node to whether it is ready; nil if that is unknown.
	Ready map[string]bool
	// Unknown says why there is no list; empty if there is one.
	Unknown string
}

// Page renders the status page.
type Page struct{ template *template.Template }

// New returns the page.
func New() *Page {
	return &Page{template.Must(template.New("page").Funcs(template.FuncMap{
		"ago": ago, "at": at, "row": func(i int) int { return 24*i + 20 }, "day": day, "duration": duration, "join": strings.Join,
		"peer": peerMood, "vip": vipMood, "balancer": balancerMood, "offer": offerMood,
		"session": checkMood, "stage": stageMood, "few": few, "reported": reported, "stale": report.Stale, "upper": strings.ToUpper,
	}).Parse(page))}
}

// Handler serves the page. status and nodes are called for each request.
func (p *Page) Handler(status func() admin.Status, nodes func() *Nodes) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var out bytes.Buffer
		if err := p.Write(&out, status(), nodes(), time.Now()); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		_, _ = out.WriteTo(w) // an error means that the client has gone
	})
}

// Write renders s as of now, with the cluster's nodes unless nodes is nil.
func (p *Page) Write(w io.Writer, s admin.Status, nodes *Nodes, now time.Time) error {
	ready, why := s.Ready()
	lanes, left := lanes(s, now)
	err := p.template.Execute(w, struct {
		admin.Status
		Now      time.Time
		Ready    bool
		Because  string
		Unfenced bool
		Unreal   bool
		Lanes    []lane
		Left     int // lanes, that are not drawn
		Nodes    *Nodes
	}{s, now, ready, why, s.Election != nil && s.Election.Fence != admin.FenceOn, s.Realtime != "" && s.Realtime != admin.RealtimeOn, lanes, left, nodes})
	if err != nil {
		return fmt.Errorf("status page: %w", err)
	}
	return nil
}

// at formats t to the millisecond.
func at(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000") }

// day formats t without the year, in one word, for a narrow column.
func day(t time.Time) string { return t.UTC().Format("01-02\u00a015:04:05.000") }

// ago formats the time since t in whole seconds; 0 if t is in the future.
func ago(t, now time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return max(0, now.Sub(t)).Truncate(time.Second).String()
}

// few formats the first four of a list.
func few(list []string) string {
	if len(list) > 4 {
		list = append(list[:4:4], "…")
	}
	return strings.Join(list, ", ")
}

// reported returns the time of a node's last change of its report.
func reported(n v1alpha1.NodeStatus) (at time.Time) {
	for _, f := range n.ManagedFields {
		if f.Time != nil && f.Time.After(at) {
			at = f.Time.Time
		}
	}
	return at
}

// duration formats seconds to about three digits.
func duration(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d > time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(10 * time.Microsecond).String()
}

// Moods are classes of the style sheet. They only colour text that says the same in words.
const (
	good = "good"
	odd  = "odd"
	bad  = "bad"
	idle = "idle"
)

// vipMood distinguishes a VIP withheld because of a fault from a VIP that another node holds.
func vipMood(v admin.VIP, e *admin.Election) string {
	switch {
	case v.State == admin.Blocked || v.State == admin.Unsent || v.Conflict != "" || v.Rival != "":
		return bad
	case v.Stage == speaker.Announced && !v.Kept && len(v.Sent) == len(v.Peers) && v.Error == "":
		return good
	case v.Stage != speaker.Withdrawn:
		return odd
	case e.Holder(v.Name) != "":
		return idle
	}
	return bad
}

func peerMood(p bgp.Session) string {
	switch {
	case p.State != bgp.Established:
		return bad
	case p.BFD != nil && p.BFD.State != bfd.Up:
		return odd
	}
	return good
}

func balancerMood(b admin.Balancer) string {
	switch {
	case !b.InForce():
		return idle
	case b.Why() != "":
		return bad
	case b.Serving() < len(b.Backends):
		return odd
	}
	return good
}

func offerMood(o admin.Offer) string {
	switch o.State() {
	case admin.ServingNew:
		return good
	case admin.ServingSilent:
		return bad
	}
	return odd
}

// The page reads the reports of all nodes once in nodesFor, however many viewers it has, and waits nodesWithin for the answer.
const nodesFor, nodesWithin = 5 * time.Second, 2 * time.Second

// Reports caches the reports of all nodes. The zero value is empty.
type Reports struct {
	mu   sync.Mutex
	at   time.Time
	list []v1alpha1.NodeStatus
	err  error
}

// Get returns the reports, and reads them if they are old. Other viewers wait for the answer.
func (r *Reports) Get(read func(context.Context) ([]v1alpha1.NodeStatus, error)) ([]v1alpha1.NodeStatus, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.at) >= nodesFor {
		// The context of a browser may end while others wait.
		ctx, cancel := context.WithTimeout(context.Background(), nodesWithin)
		defer cancel()
		r.list, r.err = read(ctx)
		r.at = time.Now()
	}
	return r.list, r.err
}

const (
	// window is the time span of the timeline, width its width in units, and mostLanes its most rows.
	window    = time.Hour
	width     = 720
	mostLanes = 30
)

// lane is the history of an address, a check or a session.
type lane struct {
	Name  string
	Spans []span
}

// span is a time in one state.
type span struct {
	X, Width    float64
	Mood, State string
	From        time.Time
}

// lanes returns the rows of the timeline, and the number of rows beyond mostLanes. Before the oldest remembered event a
// row is blank.
func lanes(s admin.Status, now time.Time) (out []lane, left int) {
	add := func(subject, name, state string, since time.Time, mood func(state string) string) {
		if len(out) == mostLanes {
			left++
			return
		}
		out = append(out, lane{name, spans(s.Events, subject, state, since, now, mood)})
	}
	for _, v := range s.VIPs {
		add("vip "+v.Name+" "+v.Address.String(), v.Name+" "+v.Address.String(), string(v.Stage), v.Since, stageMood)
	}
	for _, c := range s.Checks {
		add("check "+c.Name, "check "+c.Name, c.State.String(), c.Since, checkMood)
	}
	for _, p := range s.Peers {
		state := "down"
		if p.State == bgp.Established {
			state = string(p.State)
		}
		add("peer "+p.Name, "peer "+p.Name, state, p.Since, checkMood)
	}
	return out, left
}

// spans returns the states of a subject, the latest first: the present state since a time and, from its events, which
// are newest first, the states before.
func spans(events []eventlog.Event, subject, state string, since, now time.Time, mood func(string) string) []span {
	from := []eventlog.Event{{At: since, State: state}}
	for _, e := range events {
		last := &from[len(from)-1]
		switch {
		case e.Of != subject:
		case e.State == last.State && e.At.Before(last.At):
			last.At = e.At
		case e.At.Before(last.At):
			from = append(from, e)
		}
	}
	begin, end := now.Add(-window), now
	var out []span
	for _, e := range from {
		at := e.At
		if at.Before(begin) {
			at = begin
		}
		if at.Before(end) {
			out = append(out, span{X: place(at, now), Width: place(end, now) - place(at, now), Mood: mood(e.State), State: e.State, From: e.At})
			end = at
		}
	}
	return out
}

// place returns the position of a time in the timeline.
func place(t, now time.Time) float64 { return width * (1 - now.Sub(t).Seconds()/window.Seconds()) }

func stageMood(state string) string {
	switch speaker.Stage(state) {
	case speaker.Announced:
		return good
	case speaker.Withdrawn:
		return idle
	}
	return odd
}

func checkMood(state string) string {
	switch state {
	case health.Healthy.String(), string(bgp.Established):
		return good
	case health.Unknown.String():
		return odd
	}
	return bad
}
