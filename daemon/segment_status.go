package daemon

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/herald-vip/herald/admin"
	"github.com/herald-vip/herald/arp"
	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/lease"
	"github.com/herald-vip/herald/speaker"
)

// status is the election for the admin socket, with the leases of the addresses on a
// flat layer 2 that are of the VIPs configured; nil if there is none.
func (g *segment) status(now time.Time, addresses []speaker.Status, configured map[string]bool) *admin.Election {
	st := g.election.Status()
	if !st.Running {
		return nil
	}
	out := &admin.Election{
		Problem: cmp.Or(st.Lease.Problem, st.Lease.Lag), Insecure: !st.Encrypted, Exposed: g.exposed(), AsksAsVIP: g.asksAsVIP(), Fence: g.unfenced,
		Strangers: st.Dropped.Unknown, Undecipherable: st.Dropped.Unreadable,
		Ignored: st.Dropped.Ignored + st.Dropped.Malformed + st.Dropped.Refused,
	}
	electorate := st.Lease.Active
	if electorate == nil {
		electorate = st.Lease.Pending
	}
	out.Change = change(st)
	out.Quorum, out.Lease = electorate.Quorum.String(), electorate.Duration.Seconds()
	for _, m := range st.Members {
		out.Members = append(out.Members, admin.Member{
			Name: m.Name, Address: m.Address, Self: m.Name == g.node, Alive: m.Alive, Heard: m.Heard, Stands: m.Standing,
			Reason: cmp.Or(m.Problem, ahead(st, m)),
		})
	}
	known := slices.DeleteFunc(st.Lease.Leases, func(l lease.LeaseStatus) bool { return !configured[l.Lease] && isAddress(l.Lease) })
	out.Leases = g.leases(now, known, addresses)
	out.Offers = adminOffers(g.election.Offers())
	return out
}

// isAddress reports whether a lease is that of a Service's address.
func isAddress(name string) bool {
	_, err := netip.ParseAddr(name)
	return err == nil
}

// holders are the nodes that hold leases, as far as this one knows.
func (g *segment) holders() map[string]string {
	out := make(map[string]string)
	for _, l := range g.election.Status().Lease.Leases {
		if l.Holder != "" {
			out[l.Lease] = l.Holder
		}
	}
	return out
}

// leases has one for each VIP on a flat layer 2, also if nobody has stood for it yet.
// One that nobody holds, and this node does not stand for, says why it does not.
func (g *segment) leases(now time.Time, known []lease.LeaseStatus, addresses []speaker.Status) []admin.Lease {
	reasons := make(map[string]string) // of this node, by VIP
	for _, a := range addresses {
		if _, ok := reasons[a.VIP]; ok || !a.Flat {
			continue
		}
		reasons[a.VIP] = a.Reason
		if !slices.ContainsFunc(known, func(l lease.LeaseStatus) bool { return l.Lease == a.VIP }) {
			known = append(known, g.election.Lease(a.VIP))
		}
	}
	var out []admin.Lease
	for _, l := range known {
		row := admin.Lease{
			VIP: l.Lease, Holder: l.Holder, Reason: why(l), Epoch: l.Epoch, Votes: l.Votes, Needed: l.Needed,
			Left: max(0, l.Until.Sub(now).Seconds()), Stands: l.Standing,
		}
		if here := reasons[l.Lease]; here != "" && l.Holder == "" && !l.Standing {
			row.Reason += "; here " + here
		}
		out = append(out, row)
	}
	slices.SortFunc(out, func(a, b admin.Lease) int { return cmp.Compare(a.VIP, b.VIP) })
	return out
}

// exposed says that others may read the key of the election.
func (g *segment) exposed() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return election.Exposed(g.keyFile)
}

// why says why nobody holds a lease, and why this node does not any more.
func why(l lease.LeaseStatus) string {
	if l.Lost == "" {
		return l.Why
	}
	return strings.TrimPrefix(l.Why+"; lost here: "+l.Lost, "; ")
}

// conflicts are what the wire says of each address.
func (g *segment) conflicts() map[netip.Addr]arp.Finding {
	out := make(map[netip.Addr]arp.Finding)
	for _, f := range g.announcer.Status() {
		out[f.Addr] = f
	}
	return out
}
