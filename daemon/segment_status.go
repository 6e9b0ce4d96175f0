package daemon

import (
	"cmp"
	"net/netip"
	"strings"
	"time"

	"github.com/herald-vip/herald/admin"
	"github.com/herald-vip/herald/arp"
	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/lease"
)

// status is the election for the admin socket; nil if there is none.
func (g *segment) status(now time.Time) *admin.Election {
	st := g.election.Status()
	if !st.Running || st.Lease.Active == nil && st.Lease.Pending == nil {
		return nil
	}
	out := &admin.Election{
		Problem: st.Lease.Problem, Insecure: !st.Encrypted, Exposed: g.exposed(), Fence: g.unfenced,
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
	for _, l := range st.Lease.Leases {
		out.Leases = append(out.Leases, admin.Lease{
			VIP: l.Lease, Holder: l.Holder, Reason: why(l), Epoch: l.Epoch, Votes: l.Votes, Needed: l.Needed,
			Left: max(0, l.Until.Sub(now).Seconds()), Stands: l.Standing,
		})
	}
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
