// Package report tells the Kubernetes API how a node stands, in the [v1alpha1.NodeStatus] of its name: when that
// changes, and within bounds. At rest it sends nothing.
package report

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service/pool"
	"github.com/herald-vip/herald/status/admin"
)

// Bounds of what is told of Services: ranges of addresses in a list, reasons, and bytes of one that is read.
const mostRanges, mostReasons, longestReason = 4000, 64, 512

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

// Of is how a node stands, of which draining, VIPs and peers of s are told, and the addresses of Services, in order.
func Of(s admin.Status, addresses iter.Seq[Address]) v1alpha1.NodeState {
	out := v1alpha1.NodeState{Version: s.Version, Draining: s.Draining}
	up := 0
	for _, p := range s.Peers {
		one := v1alpha1.NodeSession{Peer: p.Name, ASN: p.AS(), State: "down", Since: at(p.Since), Reason: p.Reason}
		if p.State == admin.Established {
			one.State = string(p.State)
			up++
		}
		if p.BFD != nil {
			one.BFD = string(p.BFD.State)
		}
		out.Sessions = append(out.Sessions, one)
	}
	out.Established = fmt.Sprintf("%d/%d", up, len(s.Peers))
	up = 0
	for _, v := range s.VIPs {
		if v.State == admin.Announced {
			up++
		}
		out.VIPs = append(out.VIPs, v1alpha1.NodeVIP{
			Name: v.Name, Address: v.Address.String(), State: string(v.State), Since: at(v.Since), Reason: cmp.Or(v.Error, v.Reason),
		})
	}
	out.Up = fmt.Sprintf("%d/%d", up, len(s.VIPs))

	var announced, held ranges
	var withdrawn []*ranges
	reasons := make(map[string]*ranges)
	left := 0 // of those withdrawn
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
		if r == nil && len(reasons) < mostReasons {
			r = &ranges{reason: a.Reason}
			reasons[a.Reason], withdrawn = r, append(withdrawn, r)
		}
		if r == nil {
			left++
		} else {
			r.add(a.Addr)
		}
	}
	out.Announced, out.Held = count(announced.count), count(held.count)
	room := mostRanges
	for _, r := range withdrawn {
		list, more := r.texts(room)
		room -= len(list)
		left += more
		if len(list) > 0 {
			out.Services.Withdrawn = append(out.Services.Withdrawn, v1alpha1.NodeWithdrawn{Reason: r.reason, Addresses: list})
		}
	}
	var more int
	out.Services.Announced, more = announced.texts(mostRanges)
	left += more
	out.Services.Held, more = held.texts(mostRanges)
	out.Services.More = count(left + more)
	return out
}

// at is a time as the API has it: to the second.
func at(t time.Time) metav1.Time {
	if t.IsZero() {
		return metav1.Time{}
	}
	return metav1.NewTime(t.Truncate(time.Second))
}

func count(n int) int32 { return int32(min(n, math.MaxInt32)) }

// ranges are addresses that were added in order.
type ranges struct {
	reason string
	list   []counted
	count  int
}

type counted struct {
	pool.Range
	count int
}

func (r *ranges) add(a netip.Addr) {
	r.count++
	if n := len(r.list); n > 0 && r.list[n-1].Last.Next() == a {
		r.list[n-1].Last = a
		r.list[n-1].count++
		return
	}
	r.list = append(r.list, counted{pool.Range{First: a, Last: a}, 1})
}

// texts are the first n of the ranges, and how many addresses the others have.
func (r *ranges) texts(n int) (out []string, more int) {
	more = r.count
	for _, one := range r.list[:min(n, len(r.list))] {
		text := one.String()
		if one.First == one.Last {
			text = one.First.String()
		}
		out = append(out, text)
		more -= one.count
	}
	return out, more
}

// Told is what a node has told of the addresses of Services.
type Told struct {
	announced, held []pool.Range
	withdrawn       []withdrawn
	partial         bool
}

type withdrawn struct {
	pool.Range
	reason string
}

// Read reads what a node tells, and passes over what makes no sense.
func Read(s v1alpha1.NodeServices) *Told {
	t := &Told{announced: read(s.Announced), held: read(s.Held), partial: s.More > 0}
	for _, w := range s.Withdrawn {
		w.Reason = strings.ToValidUTF8(w.Reason[:min(len(w.Reason), longestReason)], "") // it goes into the status of Services
		for _, r := range read(w.Addresses) {
			t.withdrawn = append(t.withdrawn, withdrawn{r, w.Reason})
		}
	}
	slices.SortFunc(t.withdrawn, func(a, b withdrawn) int { return a.First.Compare(b.First) })
	return t
}

func read(texts []string) []pool.Range {
	var out []pool.Range
	for _, text := range texts {
		if addr, err := netip.ParseAddr(text); err == nil {
			out = append(out, pool.Range{First: addr, Last: addr})
		} else if r, err := pool.ParseRange(text); err == nil {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b pool.Range) int { return a.First.Compare(b.First) })
	return out
}

// Answer is what a node says of an address.
type Answer struct {
	Address
	// Unknown: what it told had no room for all.
	Unknown bool
}

// Of is what is told of an address; nothing by nobody.
func (t *Told) Of(a netip.Addr) Answer {
	out := Answer{Address: Address{Addr: a}}
	if t == nil {
		return out
	}
	_, out.Announced = find(t.announced, a, func(r pool.Range) pool.Range { return r })
	_, out.Held = find(t.held, a, func(r pool.Range) pool.Range { return r })
	if out.Announced || out.Held {
		return out
	}
	w, ok := find(t.withdrawn, a, func(w withdrawn) pool.Range { return w.Range })
	out.Reason, out.Unknown = w.reason, !ok && t.partial
	return out
}

// find is the one of a list, in order, that has an address.
func find[T any](list []T, a netip.Addr, of func(T) pool.Range) (one T, ok bool) {
	i, _ := slices.BinarySearchFunc(list, a, func(x T, a netip.Addr) int { return of(x).Last.Compare(a) })
	if i < len(list) && of(list[i]).Contains(a) {
		return list[i], true
	}
	return one, false
}
