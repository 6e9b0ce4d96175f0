// Package report writes how a node stands to the Kubernetes API, in the [v1alpha1.NodeStatus] of its name: when that
// changes or somebody else has changed it, and within bounds. At rest it sends nothing.
package report

import (
	"fmt"
	"iter"
	"math"
	"net/netip"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/bgp/gracefulshutdown"
	"github.com/herald-vip/herald/internal/text"
	"github.com/herald-vip/herald/service/pool"
)

// Bounds, which the CRD has, too: of a list the sessions or VIPs, the ranges of Services' addresses and the reasons, and
// the characters of a sentence. All together are less than etcd takes.
const mostListed, mostRanges, mostReasons, longest = 256, 4000, 64, 256

// Address is one that Services have.
type Address struct {
	Addr netip.Addr
	// Announced: a peer was sent a route to it.
	Announced bool
	// Held: this node holds it on a flat layer 2.
	Held bool
	// Reason is why it is neither; empty if there is nothing to say, as another node holds it.
	Reason string
}

// Node is the state of a node, without the addresses of Services.
type Node struct {
	Version  string
	Draining string // the reason; empty if it is not drained
	Sessions []bgp.Session
	VIPs     []v1alpha1.NodeVIP
}

// Of returns the state of a node for its report, with the addresses of Services, which are in order, and within bounds. No
// list is nil: the server would keep another client's.
func Of(s Node, addresses iter.Seq[Address]) v1alpha1.NodeState {
	out := v1alpha1.NodeState{
		Version: s.Version, Draining: text.Cut(s.Draining, longest), Sessions: []v1alpha1.NodeSession{}, VIPs: []v1alpha1.NodeVIP{},
		Services: v1alpha1.NodeServices{Withdrawn: []v1alpha1.NodeWithdrawn{}},
	}
	up := 0
	for _, p := range s.Sessions {
		one := v1alpha1.NodeSession{Peer: p.Name, ASN: p.AS(), State: "down", Since: at(p.Since), Reason: text.Cut(p.Reason, longest)}
		if p.State == bgp.Established {
			one.State = string(p.State)
			up++
		}
		if p.BFD != nil {
			one.BFD = p.BFD.State.String()
		}
		out.Sessions = append(out.Sessions, one)
	}
	out.Established = fmt.Sprintf("%d/%d", up, len(s.Sessions))
	up = 0
	for _, v := range s.VIPs {
		if v.State == string(gracefulshutdown.Announced) {
			up++
		}
		v.Since, v.Reason = at(v.Since.Time), text.Cut(v.Reason, longest)
		out.VIPs = append(out.VIPs, v)
	}
	out.Up = fmt.Sprintf("%d/%d", up, len(s.VIPs))
	out.Sessions, out.VIPs = out.Sessions[:min(len(s.Sessions), mostListed)], out.VIPs[:min(len(s.VIPs), mostListed)]

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

// at is a time as the API has it: to the second.
func at(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

func count(n int) int32 { return int32(min(n, math.MaxInt32)) }

// ranges are addresses that were added in order.
type ranges struct {
	reason string
	list   []pool.Range
	room   *int // for how many more ranges there is
	count  int
	left   int // of them, for which there was no room
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
	for i, one := range r.list {
		if out[i] = one.String(); one.First == one.Last {
			out[i] = one.First.String()
		}
	}
	return out
}

// Report is what a node reports of the addresses of Services.
type Report struct {
	announced, held, withdrawn []stated
	partial                    bool
}

type stated struct {
	pool.Range
	reason string
}

// Read reads what a node reports, and passes over what makes no sense.
func Read(s v1alpha1.NodeServices) *Report {
	r := &Report{announced: read(nil, s.Announced, ""), held: read(nil, s.Held, ""), partial: s.More > 0}
	for _, w := range s.Withdrawn {
		r.withdrawn = read(r.withdrawn, w.Addresses, text.Cut(w.Reason, longest)) // it goes into the status of Services
	}
	return r
}

// read adds ranges to a list, which is in order.
func read(to []stated, texts []string, reason string) []stated {
	for _, text := range texts {
		if addr, err := netip.ParseAddr(text); err == nil {
			to = append(to, stated{pool.Range{First: addr, Last: addr}, reason})
		} else if r, err := pool.ParseRange(text); err == nil {
			to = append(to, stated{r, reason})
		}
	}
	slices.SortFunc(to, func(a, b stated) int { return a.First.Compare(b.First) })
	return to
}

// Answer is what a node says of an address.
type Answer struct {
	Address
	// Unknown: what it reports has no room for all.
	Unknown bool
}

// Of is what is reported of an address; nothing by nobody.
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

// find is the one of a list, in order, that has an address.
func find(list []stated, a netip.Addr) (one stated, ok bool) {
	i, _ := slices.BinarySearchFunc(list, a, func(x stated, a netip.Addr) int { return x.Last.Compare(a) })
	if i < len(list) && list[i].Contains(a) {
		return list[i], true
	}
	return one, false
}

// Stale is why what a node reports is not believed, by the Nodes there are and whether they are ready, or nil if that is
// not known: nobody withdraws what another one reported. It is empty if there is no reason.
func Stale(node string, ready map[string]bool) string {
	switch is, exists := ready[node]; {
	case ready == nil, is:
		return ""
	case !exists:
		return "gone, says Kubernetes"
	}
	return "not Ready, says Kubernetes"
}
