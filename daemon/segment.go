package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
	"github.com/herald-vip/herald/service/announce"
	"github.com/herald-vip/herald/speaker"
)

const (
	// lookInterval is how often the members' hardware is looked after, and whom the kernel asks as.
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
	told     func(health.Verdict)      // the speaker's
	changed  func()                    // leases were
	moved    func()                    // links of VIPs were
	restored func()                    // the fence was, closed
	offers   func() []announce.Address // of Services, that this node may hold by what the API says
	offered  func([]election.Offered)  // members have offered something else

	election  *election.Election
	announcer *arp.Announcer
	fence     *fence.Fence  // nil if there is none
	unfenced  string        // why
	look      chan struct{} // receives when the addresses of Services are to be looked at

	leaving atomic.Bool // what is heard of members from now on is this node's doing

	yields sync.Map // why a lease is to be handed over, by VIP

	mu         sync.Mutex
	keyFile    string         // of the election, empty if it has none
	bind       netip.AddrPort // that was found for a node without a vote
	vips       []flatVIP
	services   tenancy
	members    []string
	links      map[string]netutil.Link // nil until they are known
	acquainted bool                    // the hardware of all is known, or has been waited for
	verdicts   map[string]health.Verdict
	asking     map[string]string // why the kernel may ask in the name of a VIP, by link
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
	g := &segment{log: log, node: c.NodeName, look: make(chan struct{}, 1), verdicts: make(map[string]health.Verdict)}
	g.services.init(c)
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
	f, err := fence.New(log, fence.Options{Services: c.Services != nil, HostPorts: c.Services != nil && c.Services.HostPorts})
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

// elect puts the election of c in force.
func (g *segment) elect(c *config.Config) error {
	if c.Election == nil {
		return nil
	}
	bind, err := g.bindFor(c)
	if err != nil {
		return err
	}
	e := &election.Config{
		Self: c.NodeName, Bind: bind, Members: c.Election.Members, Keys: c.Election.Keys,
		Insecure: c.Election.Insecure, Lease: c.Election.Lease, Remember: memory(c),
	}
	if c.Election.Quorum == config.None {
		e.Quorum = lease.None
	}
	if err := g.election.Apply(e); err != nil {
		return err
	}
	g.mu.Lock()
	before := g.keyFile
	g.keyFile = c.Election.KeyFile
	g.mu.Unlock()
	if said := election.Exposed(c.Election.KeyFile); said != "" && c.Election.KeyFile != before {
		g.log.Warn("THE KEY OF THE ELECTION IS EXPOSED: " + said)
	}
	return nil
}

// memory is the file, beside the socket, in which a node without a vote remembers who the
// others are.
func memory(c *config.Config) string {
	return strings.TrimSuffix(c.Admin.Socket, ".sock") + ".members"
}

// watch takes in the VIPs of c, and has their links and addresses watched.
func (g *segment) watch(c *config.Config) {
	if c.Election == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.members = slices.Sorted(maps.Keys(c.Election.Members))
	g.services.lifetime = lifetime(c.Election.Lease)
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

// run does the background work until ctx is done.
func (g *segment) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return g.announcer.Run(ctx) })
	group.Go(func() error { return netutil.WatchLinks(ctx, g.linksChanged) })
	if g.fence != nil {
		group.Go(func() error { g.fence.Keep(ctx, g.restored); return nil })
	}
	group.Go(func() error {
		tick := time.NewTicker(lookInterval)
		defer tick.Stop()
		began := time.Now()
		for {
			g.meet(time.Since(began) >= acquaintance)
			g.mu.Lock()
			g.askAsNode()
			g.mu.Unlock()
			g.contend(time.Since(began) >= acquaintance)
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			case <-g.look:
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
	for _, of := range hardware { // also of those without a vote
		macs = append(macs, of...)
	}
	g.announcer.Members(macs)
	known := 0
	for _, member := range g.members {
		if len(hardware[member]) > 0 {
			known++
		}
	}
	if !g.acquainted && (late || known == len(g.members)) {
		g.acquainted = true
		return g.place()
	}
	return false
}

// close leaves the election. clean says that nothing is bound any more, so that the fence has nothing left to guard.
func (g *segment) close(clean bool) {
	g.leaving.Store(true)
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
