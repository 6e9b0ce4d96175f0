package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/herald-vip/herald/admin"
	"github.com/herald-vip/herald/arp"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/lease"
	"github.com/herald-vip/herald/netutil"
	"github.com/herald-vip/herald/netutil/fence"
	"github.com/herald-vip/herald/speaker"
)

const (
	// lookInterval is how often the fence is looked after, and the members' hardware.
	lookInterval = time.Second
	// acquaintance is how long to wait for all members to say where their VIPs may be
	// seen before the rest are taken for strangers.
	acquaintance = 3 * time.Second
)

// segment is what VIPs on a flat layer 2 need beside the speaker: the election,
// the announcements, the fence and the links. What it finds out of these it
// tells the speaker as verdicts of checks of its own, one for the link of each
// address and one for the address itself.
type segment struct {
	log      *slog.Logger
	node     string
	told     func(health.Verdict) // the speaker's
	changed  func()               // leases were
	moved    func()               // links of VIPs were
	restored func()               // the fence was, closed

	election  *election.Election
	announcer *arp.Announcer
	fence     *fence.Fence // nil if there is none
	unfenced  string       // why

	yields sync.Map // why a lease is to be handed over, by VIP

	mu         sync.Mutex
	vips       []flatVIP
	members    []string
	links      map[string]netutil.Link // nil until they are known
	acquainted bool                    // the hardware of all is known, or has been waited for
	verdicts   map[string]health.Verdict
}

// flatVIP is an address on a flat layer 2.
type flatVIP struct {
	addr   netip.Addr
	link   string // as configured, or where it was found to belong; empty if nowhere
	fixed  bool   // as configured
	lost   error  // why link is empty
	policy arp.Policy
}

// newSegment makes the segment of c, of which arp and the presence of election cannot change.
func newSegment(log *slog.Logger, c *config.Config) (*segment, error) {
	g := &segment{log: log, node: c.NodeName, verdicts: make(map[string]health.Verdict)}
	g.election = election.New(log, g)
	g.announcer = arp.New(log, arp.Options{Refresh: c.ARP.Refresh, Observe: g.found})
	switch {
	case c.Election == nil:
		g.unfenced = "no VIP needs one"
		g.clearFence()
		return g, nil
	case c.ARP.Fence == config.FenceOff:
		g.unfenced = "arp.fence is off"
		log.Warn("no fence, as configured: if herald is frozen two nodes may answer for a VIP")
		g.clearFence()
		return g, nil
	}
	f, err := fence.New(log)
	if err != nil {
		if c.ARP.Fence == config.FenceRequired || !errors.Is(err, fence.ErrUnsupported) {
			return nil, fmt.Errorf("arp.fence: %w", err)
		}
		g.unfenced = err.Error()
		log.Warn("no fence: if herald is frozen two nodes may answer for a VIP", "err", err)
		return g, nil
	}
	g.fence, g.unfenced = f, admin.FenceOn
	return g, nil
}

// clearFence removes what a predecessor that had a fence may have left of it.
func (g *segment) clearFence() {
	if err := fence.Clear(); err != nil {
		g.log.Debug("a fence may be left", "err", err)
	}
}

// parts are what the speaker uses of the segment.
func (g *segment) parts() speaker.Segment {
	parts := speaker.Segment{Leases: leases{g}, Announcer: announcer{g.announcer, g.log}}
	if g.fence != nil {
		parts.Fence = g.fence
	}
	return parts
}

// announcer tells the neighbours of an address once the kernel takes packets for it.
type announcer struct {
	*arp.Announcer
	log *slog.Logger
}

// Announce implements [speaker.Announcer].
func (a announcer) Announce(link string, addrs ...netip.Addr) error {
	for _, addr := range addrs {
		if err := netutil.AwaitLocal(addr); err != nil {
			a.log.Warn("connections to the VIP may fail at first", "err", err)
		}
	}
	return a.Announcer.Announce(link, addrs...)
}

// leases are the election in the speaker's terms.
type leases struct{ *segment }

var (
	_ speaker.Leases    = leases{}
	_ election.Observer = (*segment)(nil)
)

func (l leases) Stand(vip string, claim speaker.Flat) {
	l.election.Stand(lease.Candidacy{Lease: vip, Priority: claim.Priority, Preempt: claim.Preempt})
}

func (l leases) Resign(vip string) {
	l.election.Resign(vip)
	l.yields.Delete(vip)
}

func (l leases) Forget(vip string) { l.election.Forget(vip) }

func (l leases) Lease(vip string) speaker.Lease {
	st := l.election.Lease(vip)
	switch {
	case st.Holder == l.node:
		why, _ := l.yields.Load(vip)
		reason, _ := why.(string)
		return speaker.Lease{Until: st.Until, Yield: reason}
	case st.Holder != "":
		return speaker.Lease{Reason: st.Holder + " holds the lease"}
	}
	return speaker.Lease{Reason: "no holder: " + st.Why}
}

// Granted implements [election.Observer]. Whatever happened, the speaker looks
// at the leases as they are by then.
func (g *segment) Granted([]lease.Granted) { g.changed() }

// Lost implements [election.Observer].
func (g *segment) Lost(lost []lease.Lost) {
	for _, l := range lost {
		g.yields.Delete(l.Lease)
	}
	g.changed()
}

// Yield implements [election.Observer].
func (g *segment) Yield(y lease.Yield) {
	g.yields.Store(y.Lease, fmt.Sprintf("handed over to %s: %s", y.To, y.Reason))
	g.changed()
}

// elect puts the election of c in force.
func (g *segment) elect(c *config.Config) error {
	if c.Election == nil {
		return nil
	}
	e := &election.Config{
		Self: c.NodeName, Bind: c.Election.Bind, Members: c.Election.Members, Keys: c.Election.Keys,
		Insecure: c.Election.Insecure, Lease: c.Election.Lease,
	}
	if c.Election.Quorum == config.None {
		e.Quorum = lease.None
	}
	return g.election.Apply(e)
}

// watch takes in the VIPs of c, and has their links and addresses watched.
func (g *segment) watch(c *config.Config) {
	if c.Election == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.members = slices.Sorted(maps.Keys(c.Election.Members))
	g.vips = nil
	for _, v := range c.VIPs {
		if v.Announce != config.AnnounceARP {
			continue
		}
		for _, addr := range v.Addresses {
			flat := flatVIP{addr: addr, link: v.Interface, fixed: v.Interface != ""}
			if v.OnConflict == config.Yield {
				flat.policy = arp.Yield
			}
			g.vips = append(g.vips, flat)
		}
	}
	g.place()
}

// place finds the links of the VIPs that none is configured for, and has all of them watched.
func (g *segment) place() (changed bool) {
	var watched []arp.Watched
	for i := range g.vips {
		v := &g.vips[i]
		if !v.fixed {
			link, err := netutil.LinkFor(v.addr)
			if err != nil && v.link != "" {
				err, link = nil, v.link // its other addresses may come back
			}
			changed = changed || link != v.link
			v.link, v.lost = link, err
		}
		if v.link == "" {
			continue
		}
		watched = append(watched, arp.Watched{Link: v.link, Addr: v.addr, Policy: v.policy, Probe: v.policy == arp.Yield})
		if err := fence.AnnounceOwn(v.link); err != nil {
			g.log.Debug("the kernel may ask for neighbours in the name of a VIP", "link", v.link, "err", err)
		}
	}
	if g.acquainted {
		g.announcer.Apply(watched)
		for _, f := range g.announcer.Status() { // what was found under another policy counts under the new one
			g.note(f)
		}
	}
	g.judge()
	return changed
}

// linksChanged takes in how the links are now.
func (g *segment) linksChanged(links map[string]netutil.Link) {
	g.mu.Lock()
	g.links = links
	changed := g.place()
	var macs []net.HardwareAddr
	for _, v := range g.vips {
		if mac := links[v.link].MAC; len(mac) > 0 {
			macs = append(macs, mac)
		}
	}
	g.mu.Unlock()
	g.election.Describe(macs)
	if changed {
		g.moved()
	}
}

// judge tells the speaker how the links of its VIPs are.
func (g *segment) judge() {
	for _, v := range g.vips {
		verdict := health.Verdict{Check: linkCheck(v), State: health.Healthy, Reason: "up"}
		link, known := g.links[v.link]
		switch {
		case v.lost != nil:
			verdict.State, verdict.Reason = health.Unhealthy, v.lost.Error()
		case g.links == nil:
			verdict.State, verdict.Reason = health.Unknown, "not looked at yet"
		case !known:
			verdict.State, verdict.Reason = health.Unhealthy, "there is no link "+v.link
		case !link.Up:
			verdict.State, verdict.Reason = health.Unhealthy, "down or without carrier"
		}
		g.tell(verdict)
	}
}

// tell passes a verdict on if it is news.
func (g *segment) tell(v health.Verdict) {
	old, ok := g.verdicts[v.Check]
	if ok && old.State == v.State && old.Reason == v.Reason {
		return
	}
	v.Since = time.Now()
	v.Cause, v.Checked = v.Since, v.Since
	g.verdicts[v.Check] = v
	g.told(v)
}

// found takes in what the wire says of an address.
func (g *segment) found(f arp.Finding) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.note(f)
}

// note makes a finding a verdict where it decides. The mutex is held.
func (g *segment) note(f arp.Finding) {
	for _, v := range g.vips {
		if v.addr != f.Addr || v.link != f.Link || v.policy != arp.Yield {
			continue
		}
		verdict := health.Verdict{Check: addressCheck(v), State: health.Healthy, Reason: "nobody else uses it"}
		switch f.State {
		case arp.Unknown:
			verdict.State, verdict.Reason = health.Unknown, "asking the link whether it is in use"
		case arp.Taken:
			verdict.State, verdict.Reason = health.Unhealthy, fmt.Sprintf("in use by %s, which is no member", f.MAC)
		}
		g.tell(verdict)
	}
}

func linkCheck(v flatVIP) string {
	if v.link == "" {
		return "link of " + v.addr.String()
	}
	return "link " + v.link
}

func addressCheck(v flatVIP) string { return "address " + v.addr.String() }

// of returns the link of a VIP's address and the checks that the segment adds to it.
func (g *segment) of(addr netip.Addr) (link string, checks []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, v := range g.vips {
		if v.addr != addr {
			continue
		}
		checks = append(checks, linkCheck(v))
		if v.policy == arp.Yield {
			checks = append(checks, addressCheck(v))
		}
		return v.link, checks
	}
	return "", nil
}

// checks are the verdicts that the segment adds to those of the monitor.
func (g *segment) checks() []health.Verdict {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Values(g.verdicts))
}

// run does the background work until ctx is done.
func (g *segment) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return g.announcer.Run(ctx) })
	group.Go(func() error { return netutil.WatchLinks(ctx, g.linksChanged) })
	group.Go(func() error {
		tick := time.NewTicker(lookInterval)
		defer tick.Stop()
		began := time.Now()
		for {
			g.meet(time.Since(began) >= acquaintance)
			g.mend()
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
		}
	})
	return group.Wait()
}

// meet learns where the members' VIPs may be seen. Watching begins when all have said something, or late.
func (g *segment) meet(late bool) {
	if g.introduce(late) {
		g.moved()
	}
}

func (g *segment) introduce(late bool) (moved bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	hardware := g.election.Hardware()
	var macs []net.HardwareAddr
	known := 0
	for _, member := range g.members {
		macs = append(macs, hardware[member]...)
		if len(hardware[member]) > 0 {
			known++
		}
	}
	g.announcer.Members(macs)
	if !g.acquainted && (late || known == len(g.members)) {
		g.acquainted = true
		return g.place()
	}
	return false
}

// mend puts back what somebody removed of the fence. That closes it, so the speaker is to open it again.
func (g *segment) mend() {
	if g.fence == nil {
		return
	}
	before := g.fence.Status().Restored
	if err := g.fence.Check(); err != nil {
		g.log.Error("fence not put back", "err", err)
	}
	if g.fence.Status().Restored != before {
		g.restored()
	}
}

// close leaves the election. clean says that nothing is bound any more, so that the fence has nothing left to guard.
func (g *segment) close(clean bool) {
	if err := g.election.Close(); err != nil {
		g.log.Warn("leave the election", "err", err)
	}
	if g.fence == nil {
		return
	}
	if !clean {
		g.log.Warn("the fence stays, closed, since not everything could be withdrawn")
		return
	}
	if err := g.fence.Remove(); err != nil {
		g.log.Warn("remove the fence", "err", err)
	}
}

// status is the election for the admin socket; nil if there is none.
func (g *segment) status(now time.Time) *admin.Election {
	st := g.election.Status()
	if !st.Running || st.Lease.Active == nil && st.Lease.Pending == nil {
		return nil
	}
	out := &admin.Election{
		Problem: st.Lease.Problem, Insecure: !st.Encrypted, Fence: g.unfenced,
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
			VIP: l.Lease, Holder: l.Holder, Reason: l.Why, Epoch: l.Epoch, Votes: l.Votes, Needed: l.Needed,
			Left: max(0, l.Until.Sub(now).Seconds()), Stands: l.Standing,
		})
	}
	return out
}

// conflicts are what the wire says of each address.
func (g *segment) conflicts() map[netip.Addr]arp.Finding {
	out := make(map[netip.Addr]arp.Finding)
	for _, f := range g.announcer.Status() {
		out[f.Addr] = f
	}
	return out
}
