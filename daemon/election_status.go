package daemon

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/internal/seconds"
	"github.com/herald-vip/herald/speaker"
	"github.com/herald-vip/herald/status/admin"
)

// electionStatus returns the status of the election, with the leases of VIPs of c but not of Services; nil without an
// election.
func (d *Daemon) electionStatus(c *config.Config, addresses []speaker.Status) *admin.Election {
	st := d.flat.Election().Status()
	if !st.Running {
		return nil
	}
	out := &admin.Election{
		Problem: cmp.Or(st.Lease.Problem, st.Lease.Lag), Insecure: !st.Encrypted, Exposed: election.Exposed(c.Election.KeyFile),
		Fence:     d.fence,
		Strangers: st.Dropped.Unknown, Undecipherable: st.Dropped.Unreadable,
		Ignored: st.Dropped.Ignored + st.Dropped.Malformed + st.Dropped.Refused,
	}
	electorate := cmp.Or(st.Lease.Active, st.Lease.Desired)
	out.Change = st.Change()
	out.Quorum, out.Lease = electorate.Quorum.String(), electorate.Duration.Seconds()
	for _, m := range st.Members {
		m.Problem = cmp.Or(m.Problem, st.Ahead(m))
		out.Members = append(out.Members, m)
	}
	known := slices.DeleteFunc(st.Lease.Leases, func(l lease.LeaseStatus) bool {
		_, configured := vipOf(c, l.Lease)
		return !configured && isAddress(l.Lease)
	})
	out.Leases = adminLeases(time.Now(), known, addresses, d.flat.Election().Lease)
	for _, o := range d.flat.Election().MemberStates() {
		out.Offers = append(out.Offers, admin.Offer{MemberState: o})
	}
	return out
}

// isAddress reports whether name is that of a lease for a Service's address.
func isAddress(name string) bool {
	_, err := netip.ParseAddr(name)
	return err == nil
}

// holders returns the holder of each lease that this node knows, by the lease's name.
func holders(leases []lease.LeaseStatus) map[string]string {
	out := make(map[string]string)
	for _, l := range leases {
		out[l.Lease] = l.Holder
	}
	return out
}

// adminLeases returns a row for each VIP on a flat layer 2, even before any member campaigns for it. If there is no
// holder and this node does not campaign, the row says why.
func adminLeases(now time.Time, known []lease.LeaseStatus, addresses []speaker.Status, subject func(string) lease.LeaseStatus) []admin.Lease {
	reasons := make(map[string]string) // of this node, by VIP
	for _, a := range addresses {
		if _, ok := reasons[a.Name]; ok || a.Announce != speaker.ByARP {
			continue
		}
		reasons[a.Name] = a.Reason
		if !slices.ContainsFunc(known, func(l lease.LeaseStatus) bool { return l.Lease == a.Name }) {
			known = append(known, subject(a.Name))
		}
	}
	var out []admin.Lease
	for _, l := range known {
		row := admin.Lease{LeaseStatus: l, Reason: l.Reason(), Left: seconds.Duration(max(0, l.Until.Sub(now)))}
		if here := reasons[l.Lease]; here != "" && l.Holder == "" && !l.Campaigning {
			row.Reason += "; here " + here
		}
		out = append(out, row)
	}
	slices.SortFunc(out, func(a, b admin.Lease) int { return cmp.Compare(a.Lease, b.Lease) })
	return out
}
