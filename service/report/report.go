// Package report writes the state of a node to the Kubernetes API, in the [v1alpha1.NodeStatus] of the node's name. It
// writes after changes of the state and after edits by other clients, at a limited rate and size. At rest it sends nothing.
package report

import (
	"context"
	"fmt"
	"iter"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/bgp/gracefulshutdown"
	"github.com/herald-vip/herald/internal/text"
	"github.com/herald-vip/herald/internal/wake"
	"github.com/herald-vip/herald/service/pool"
)

// Limits, equal to the limits of the CRD: sessions or VIPs in a list, ranges of Services' addresses, reasons, and the
// characters of a sentence. An object at all limits fits into etcd.
const mostListed, mostRanges, mostReasons, longest = 256, 4000, 64, 256

// Address is the state of an address of Services on this node.
type Address struct {
	Addr netip.Addr
	// Announced reports that a peer has received a route to it.
	Announced bool
	// Held reports that this node holds it on a flat layer 2.
	Held bool
	// Reason is why it is neither; empty if there is nothing to report, for instance because another node holds it.
	Reason string
}

// Of completes the report of a node: s has its version, drain and VIPs. The result is within the limits. The addresses of
// Services must be in order. No list is nil: for nil, the server would keep the list of another client.
func Of(s v1alpha1.NodeState, sessions []bgp.Session, addresses iter.Seq[Address]) v1alpha1.NodeState {
	out := v1alpha1.NodeState{
		Version: s.Version, Draining: text.Cut(s.Draining, longest), Sessions: []v1alpha1.NodeSession{}, VIPs: []v1alpha1.NodeVIP{},
		Services: v1alpha1.NodeServices{Withdrawn: []v1alpha1.NodeWithdrawn{}},
	}
	up := 0
	for _, p := range sessions {
		session := v1alpha1.NodeSession{Peer: p.Name, ASN: p.AS(), State: "down", Since: at(p.Since), Reason: text.Cut(p.Reason, longest)}
		if p.State == bgp.Established {
			session.State = string(p.State)
			up++
		}
		if p.BFD != nil {
			session.BFD = p.BFD.State.String()
		}
		out.Sessions = append(out.Sessions, session)
	}
	out.Established = fmt.Sprintf("%d/%d", up, len(sessions))
	up = 0
	for _, v := range s.VIPs {
		if v.State == string(gracefulshutdown.Announced) {
			up++
		}
		v.Since, v.Reason = at(v.Since.Time), text.Cut(v.Reason, longest)
		out.VIPs = append(out.VIPs, v)
	}
	out.Up = fmt.Sprintf("%d/%d", up, len(s.VIPs))
	out.Sessions, out.VIPs = out.Sessions[:min(len(sessions), mostListed)], out.VIPs[:min(len(s.VIPs), mostListed)]

	announced, held, room := ranges{room: new(mostRanges)}, ranges{room: new(mostRanges)}, new(mostRanges)
	var withdrawn []*ranges
	reasons := make(map[string]*ranges)
	left := 0
	for a := range addresses {
		if a.Announced {
			announced.add(a.Addr)
		}
		if a.Held {
			held.add(a.Addr)
		}
		if a.Announced || a.Held || a.Reason == "" {
			continue
		}
		r := reasons[a.Reason]
		if r == nil {
			if *room == 0 || len(reasons) == mostReasons {
				left++
				continue
			}
			r = &ranges{reason: a.Reason, room: room}
			reasons[a.Reason], withdrawn = r, append(withdrawn, r)
		}
		r.add(a.Addr)
	}
	out.Announced, out.Held = count(announced.count), count(held.count)
	out.Services.Announced, out.Services.Held = announced.texts(), held.texts()
	for _, r := range withdrawn {
		left += r.left
		out.Services.Withdrawn = append(out.Services.Withdrawn, v1alpha1.NodeWithdrawn{Reason: text.Cut(r.reason, longest), Addresses: r.texts()})
	}
	out.Services.More = count(left + announced.left + held.left)
	return out
}

// at returns a time of the API, which has a resolution of a second.
func at(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

func count(n int) int32 { return int32(min(n, math.MaxInt32)) }

// ranges collects addresses, added in order, as ranges.
type ranges struct {
	reason string
	list   []pool.Range
	room   *int // number of further ranges that fit
	count  int  // number of addresses
	left   int  // number of addresses that did not fit
}

func (r *ranges) add(a netip.Addr) {
	r.count++
	switch n := len(r.list); {
	case n > 0 && r.list[n-1].Last.Next() == a:
		r.list[n-1].Last = a
	case *r.room > 0:
		r.list = append(r.list, pool.Range{First: a, Last: a})
		*r.room--
	default:
		r.left++
	}
}

func (r *ranges) texts() []string {
	out := make([]string, len(r.list))
	for i, rng := range r.list {
		if out[i] = rng.String(); rng.First == rng.Last {
			out[i] = rng.First.String()
		}
	}
	return out
}

// Report is the report of a node about addresses of Services.
type Report struct {
	announced, held, withdrawn []stated
	partial                    bool
}

type stated struct {
	pool.Range
	reason string
}

// Read parses the report of a node and ignores invalid entries.
func Read(s v1alpha1.NodeServices) *Report {
	r := &Report{announced: read(nil, s.Announced, ""), held: read(nil, s.Held, ""), partial: s.More > 0}
	for _, w := range s.Withdrawn {
		r.withdrawn = read(r.withdrawn, w.Addresses, text.Cut(w.Reason, longest)) // it appears in the status of Services
	}
	return r
}

// read adds ranges to a list and sorts it.
func read(list []stated, texts []string, reason string) []stated {
	for _, text := range texts {
		if addr, err := netip.ParseAddr(text); err == nil {
			list = append(list, stated{pool.Range{First: addr, Last: addr}, reason})
		} else if r, err := pool.ParseRange(text); err == nil {
			list = append(list, stated{r, reason})
		}
	}
	slices.SortFunc(list, func(a, b stated) int { return a.First.Compare(b.First) })
	return list
}

// Answer is the report of a node about one address.
type Answer struct {
	Address
	// Unknown means that the address may be missing because the report is incomplete.
	Unknown bool
}

// Of returns the report about an address; the zero state if r is nil.
func (r *Report) Of(a netip.Addr) Answer {
	out := Answer{Address: Address{Addr: a}}
	if r == nil {
		return out
	}
	_, out.Announced = find(r.announced, a)
	_, out.Held = find(r.held, a)
	if !out.Announced && !out.Held {
		w, ok := find(r.withdrawn, a)
		out.Reason, out.Unknown = w.reason, !ok && r.partial
	}
	return out
}

// find returns the entry of a sorted list that contains an address.
func find(list []stated, a netip.Addr) (found stated, ok bool) {
	i, _ := slices.BinarySearchFunc(list, a, func(x stated, a netip.Addr) int { return x.Last.Compare(a) })
	if i < len(list) && list[i].Contains(a) {
		return list[i], true
	}
	return found, false
}

// Stale returns why the report of a node is obsolete, as nothing retracts it: the Node is "gone" or "not Ready". It is
// empty if the report is valid. ready maps the existing Nodes to their readiness; nil means unknown.
func Stale(node string, ready map[string]bool) string {
	switch isReady, exists := ready[node]; {
	case ready == nil, isReady:
		return ""
	case !exists:
		return "gone"
	}
	return "not Ready"
}

const (
	// look is the interval of checks for changes.
	look = time.Second
	// farewell limits the last write at the end of the process.
	farewell = time.Second
)

// pauses between two writes grow while the server refuses writes.
var pauses = wake.Backoff{Min: 5 * time.Second, Max: 5 * time.Minute}

// Options configure a Reporter.
type Options struct {
	// Node is the node's name.
	Node string
	// Owner returns the UID of the Node; not ok while there is none. Then nothing is written.
	Owner func() (uid types.UID, ok bool)
	// Fingerprint returns a value that changes whenever the result of State may change. It must be cheap.
	Fingerprint func() any
	// State returns the state of the node.
	State func() v1alpha1.NodeState
	// Apply writes the object.
	Apply func(context.Context, *v1alpha1.NodeStatus) error
}

// Reporter writes the NodeStatus of a node.
type Reporter struct {
	opts Options

	fingerprint any
	looks       int // number of checks of the state still to make
	after       time.Time
	failures    int // of writes, in a row
	// mend is when edits by other clients may be reverted; reverts counts those in a row.
	mend    time.Time
	reverts int

	mu    sync.Mutex
	wrote *v1alpha1.NodeStatus // the last write; nil if it failed, or if the server has another object
}

// New returns a Reporter. It writes nothing until it runs.
func New(o Options) *Reporter { return &Reporter{opts: o} }

// Seen handles the server's present object; nil if there is none. If it differs from the last write, the reporter writes again.
func (r *Reporter) Seen(s *v1alpha1.NodeStatus) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s == nil || r.wrote == nil || !equality.Semantic.DeepEqual(s.Status, r.wrote.Status) ||
		!equality.Semantic.DeepEqual(s.OwnerReferences, r.wrote.OwnerReferences) {
		r.wrote = nil
	}
}

// Run writes the state of the node until ctx is done, and then once more, to report the withdrawals at the end.
func (r *Reporter) Run(ctx context.Context) {
	wake.Loop(ctx, nil, func() time.Time {
		r.step(ctx, time.Now())
		return time.Now().Add(look)
	})
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	_ = r.write(ctx) // no retry at the end
}

// step writes changes, unless a pause has not ended.
func (r *Reporter) step(ctx context.Context, now time.Time) {
	uid, exists := r.opts.Owner()
	r.mu.Lock()
	lacks := r.wrote == nil || r.wrote.OwnerReferences[0].UID != uid
	r.mu.Unlock()
	if next := r.opts.Fingerprint(); !reflect.DeepEqual(r.fingerprint, next) {
		// Peers receive routes shortly after their session is up or a Service is announced, so check twice.
		r.fingerprint, r.looks = next, 2
	}
	spoiled := r.looks == 0
	if !exists || now.Before(r.after) || spoiled && (!lacks || now.Before(r.mend)) {
		return
	}
	r.looks = max(0, r.looks-1)
	if err := r.write(ctx); err != nil {
		r.looks = max(1, r.looks)
		r.failures++
		r.after = now.Add(pauses.After(r.failures))
		return
	}
	r.failures, r.after = 0, now.Add(pauses.Min)
	if spoiled {
		if now.Sub(r.mend) > pauses.Max {
			r.reverts = 0
		}
		r.reverts++
		r.mend = now.Add(pauses.After(r.reverts))
	}
}

// write writes the state of the node, unless the server has it already.
func (r *Reporter) write(ctx context.Context) error {
	uid, exists := r.opts.Owner()
	if !exists {
		return nil
	}
	// The Node owns the object.
	next := &v1alpha1.NodeStatus{ObjectMeta: metav1.ObjectMeta{
		Name: r.opts.Node, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: r.opts.Node, UID: uid}},
	}, Status: r.opts.State()}
	r.mu.Lock()
	known := equality.Semantic.DeepEqual(r.wrote, next)
	r.wrote = next // versions seen from now on are this one or later
	r.mu.Unlock()
	if known {
		return nil
	}
	err := r.opts.Apply(ctx, next.DeepCopy())
	if err != nil {
		r.Seen(nil)
	}
	return err
}
