// Package page shows a speaker's status in a browser, also in a terminal: one read-only page of plain HTML that
// refreshes itself without scripts.
package page

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/bgp/bfd"
	"github.com/herald-vip/herald/service/report"
	"github.com/herald-vip/herald/speaker"
	"github.com/herald-vip/herald/status/admin"
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
