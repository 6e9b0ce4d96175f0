package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/internal/seconds"
	"github.com/herald-vip/herald/netutil/fence"
	"github.com/herald-vip/herald/speaker"
	"github.com/herald-vip/herald/speaker/flat"
	"github.com/herald-vip/herald/status/admin"
)

// newFence creates the fence that c asks for, or returns why there is none.
func newFence(log *slog.Logger, c *config.Config) (f *fence.Fence, unfenced string, err error) {
	if c.Election == nil || c.ARP.Fence == config.FenceOff {
		unfenced = "no VIP needs one"
		if c.Election != nil {
			unfenced = "arp.fence is off"
			log.Warn("no fence, as configured: if herald is frozen two nodes may answer for a VIP")
		}
		if err := fence.Clear(); err != nil {
			log.Debug("a predecessor's fence may be left", "err", err)
		}
		return nil, unfenced, nil
	}
	f, err = fence.New(log, fence.Options{Services: c.Services != nil, HostPorts: c.Services != nil && c.Services.HostPorts})
	switch {
	case err == nil:
		return f, admin.FenceOn, nil
	case c.ARP.Fence == config.FenceRequired || !errors.Is(err, fence.ErrUnsupported):
		return nil, "", fmt.Errorf("arp.fence: %w", err)
	}
	log.Warn("no fence: if herald is frozen two nodes may answer for a VIP", "err", err)
	return nil, err.Error(), nil
}

// flatConfig returns the settings in c of VIPs on a flat layer 2.
func flatConfig(c *config.Config, vips []speaker.VIP) flat.Config {
	out := flat.Config{VIPs: vips, Yield: make(map[string]bool)}
	for _, v := range c.VIPs {
		out.Yield[v.Name] = v.OnConflict == config.Yield
	}
	if c.Election != nil {
		out.Members = slices.Sorted(maps.Keys(c.Election.Members))
		out.Lifetime = flat.Lifetime(c.Election.Lease)
	}
	if c.Services != nil {
		out.Linger = c.Services.Linger
	}
	return out
}

// elect puts the election of c in force.
func (d *Daemon) elect(c *config.Config) error {
	if c.Election == nil {
		return nil
	}
	e := &election.Config{
		Settings: *c.Election, Self: c.NodeName, Observer: !c.Flat(),
		Remember: strings.TrimSuffix(c.Admin.Socket, ".sock") + ".members", State: filepath.Join(stateDir(), "electorate"),
	}
	if err := d.flat.Election().Apply(e); err != nil {
		return err
	}
	known := d.config != nil && d.config.Election.KeyFile == c.Election.KeyFile
	if problem := election.Exposed(c.Election.KeyFile); problem != "" && !known {
		d.log.Warn("THE KEY OF THE ELECTION IS EXPOSED: " + problem)
	}
	return nil
}

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
		_, err := netip.ParseAddr(l.Lease)
		return err == nil && !slices.ContainsFunc(c.VIPs, func(v config.VIP) bool { return v.Name == l.Lease })
	})
	for i, l := range known {
		if v := slices.IndexFunc(c.VIPs, func(v config.VIP) bool { return v.Name == l.Lease }); v >= 0 {
			for _, name := range flat.LeasesOf(l.Lease, c.VIPs[v].Addresses...) {
				known[i] = together(known[i], d.flat.Election().Lease(name))
			}
		}
	}
	out.Leases = adminLeases(time.Now(), known, addresses, d.flat.Election().Lease)
	for _, o := range d.flat.Election().MemberStates() {
		out.Offers = append(out.Offers, admin.Offer{MemberState: o})
	}
	return out
}

// together returns the lease of a VIP's name as held only if its holder may also hold the lease of the VIP's address. The
// lease of an address has no holder while a node of an earlier release serves the VIP.
func together(name, addr lease.LeaseStatus) lease.LeaseStatus {
	switch {
	case name.Holder == "" || addr.Lease == name.Lease:
	case addr.Held && name.Held, addr.Holder == name.Holder && !name.Held:
		if !addr.Until.IsZero() && addr.Until.Before(name.Until) {
			name.Until = addr.Until
		}
	case addr.Holder == "" && !name.Held:
	default:
		if name.Why = addr.Why; addr.Holder != "" {
			name.Why = addr.Holder + " holds the lease of " + addr.Lease
		}
		name.Holder, name.Epoch, name.Until, name.Votes, name.Held = "", 0, time.Time{}, nil, false
	}
	return name
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
