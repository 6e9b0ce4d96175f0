// Package flat finds out what VIPs on a flat layer 2 depend on beside their own checks: the
// links that carry them, other hosts that use their addresses, and the addresses of Services
// that this node is a candidate for. It also gives the speaker its leases.
//
// What is found comes in by methods that store it, and pure functions (place.go,
// services.go) decide what it means. The speaker is told by one goroutine, which holds
// no lock meanwhile. Only what the election says of leases, and the fence of its own end,
// reaches the speaker on the goroutine that brings it.
package flat

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/herald-vip/herald/arp"
	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/internal/wake"
	"github.com/herald-vip/herald/netutil/fence"
	"github.com/herald-vip/herald/netutil/link"
	"github.com/herald-vip/herald/netutil/rtnetlink"
	"github.com/herald-vip/herald/speaker"
)

const (
	// lookInterval is how often the members' hardware is looked up.
	lookInterval = time.Second
	// acquaintance is how long to wait for all members to say where their VIPs may be
	// seen. After that, hosts that have not said so are strangers.
	acquaintance = 3 * time.Second
)

// Speaker acts on what is found, before its methods return; [speaker.Speaker] is one.
type Speaker interface {
	Observe(health.Verdict)
	LeasesChanged()
	FenceClosed()
}

// Address is an address of a Service that this node may hold on a flat layer 2. Its lists and maps are read-only.
type Address struct {
	Addr netip.Addr
	// Pool is the name of its address pool.
	Pool string
	// Service is the key of the Service that has it: the oldest, if several share it.
	Service string
	// Interfaces are the links that may carry it; empty means the link whose subnet contains it.
	Interfaces []string
	// Nodes are the names of the nodes that may hold it, in order, this node included.
	Nodes []string
	// Preferred maps nodes to their preference ([rendezvous.Candidacy]). With Preempt the address moves to a node that is
	// preferred to its holder.
	Preferred map[string]int
	Preempt   bool
	// Apart is the other address of the Service, which another node should hold; the zero Addr means none.
	Apart netip.Addr

	holdsApart bool // this node holds that one, so that others are to have this before it
}

// Options are what does not change while the process runs.
type Options struct {
	// Watcher tells of changes of links.
	Watcher *rtnetlink.Watcher
	Log     *slog.Logger
	Node    string
	// Refresh is [arp.Options]'s.
	Refresh time.Duration
	// Fence is nil if there is none.
	Fence *fence.Fence
	// Services are the addresses of Services that this node may hold; nil if there are to be none.
	// When they change, [Flat.Look] is to be called.
	Services func() []Address
	// Moved is called when [Flat.VIPs] returns something else.
	Moved func()
	// MemberStates is called with the states of all members whenever they change.
	MemberStates func([]election.MemberState)
}

// Config is what a reload may change.
type Config struct {
	// VIPs are all VIPs of the file. Those on a flat layer 2 may lack their Interface.
	VIPs []speaker.VIP
	// Yield are the names of VIPs that this node gives up when another host uses an
	// address of theirs.
	Yield map[string]bool
	// Members are the voters that the file names; without any, the others' hardware is waited for as long as that may take.
	Members []string
	// Lifetime and Linger are those of the addresses of Services.
	Lifetime, Linger time.Duration
}

// Flat is what VIPs on a flat layer 2 need of a node.
type Flat struct {
	Options
	election  *election.Election
	announcer *arp.Announcer
	speaker   Speaker

	look chan struct{} // receives when members and Services are to be looked at
	tell chan struct{} // receives when the speaker is to be told something

	leaving     atomic.Bool // what is heard of members from now on is this node's doing
	candidacies candidacies // of [Flat.watchMembers] alone
	guarded     guarded     // likewise

	mu         sync.Mutex // guards what follows
	config     Config
	links      map[string]link.Link // nil until they are known
	acquainted bool                 // the hardware of all is known, or has been waited for
	chosen     []Address            // of Services, that this node is a candidate for
	found      map[netip.Addr]arp.Finding
	places     []place
	verdicts   map[string]health.Verdict
	untold     map[string]bool // verdicts that the speaker is yet to be told
	moved      bool            // places are others, and Moved is yet to be called
	asksAsVIP  bool
}

// New returns a Flat that has yet to run, and the speaker that newSpeaker makes of its parts and of its election.
func New[S Speaker](o Options, newSpeaker func(speaker.FlatParts, *election.Election) S) (*Flat, S) {
	f := &Flat{
		Options: o, look: make(chan struct{}, 1), tell: make(chan struct{}, 1),
		found: make(map[netip.Addr]arp.Finding), untold: make(map[string]bool),
	}
	leases := &Leases{Node: o.Node}
	f.election = election.New(o.Log, handler{leases, f})
	leases.Election = f.election
	f.announcer = arp.New(o.Log, arp.Options{Watcher: o.Watcher, Refresh: o.Refresh, Observe: f.takeFinding})
	parts := speaker.FlatParts{Leases: leases, Announcer: announcer{f.announcer, o.Log}}
	if o.Fence != nil {
		parts.Fence = o.Fence
	}
	s := newSpeaker(parts, f.election)
	f.speaker, leases.Speaker = s, s
	return f, s
}

// Election is that which decides on the leases.
func (f *Flat) Election() *election.Election { return f.election }

// announcer tells the neighbours of an address once the kernel takes packets for it.
type announcer struct {
	*arp.Announcer
	log *slog.Logger
}

// Announce implements [speaker.Announcer].
func (a announcer) Announce(until time.Time, on string, addrs ...netip.Addr) error {
	for _, addr := range addrs {
		if err := link.AwaitLocal(addr); err != nil {
			a.log.Warn("connections to the VIP may fail at first", "err", err)
		}
	}
	return a.Announcer.Announce(until, on, addrs...)
}

// Run does the background work until ctx is done.
func (f *Flat) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return f.announcer.Run(ctx) })
	group.Go(func() error { return link.Watch(ctx, f.Watcher, f.takeLinks) })
	if f.Fence != nil {
		group.Go(func() error { f.Fence.Keep(ctx, f.speaker.FenceClosed); return nil })
	}
	group.Go(func() error { f.tellSpeaker(ctx); return nil })
	group.Go(func() error { f.watchMembers(ctx); return nil })
	return group.Wait()
}

// Close leaves the election. clean says that nothing is bound any more, so that the fence has
// nothing left to guard.
func (f *Flat) Close(clean bool) {
	f.leaving.Store(true)
	if err := f.election.Close(); err != nil {
		f.Log.Warn("cannot leave the election", "err", err)
	}
	if f.Fence == nil {
		return
	}
	if !clean {
		f.Log.Warn("the fence stays, closed, since not everything could be withdrawn")
		return
	}
	if err := f.Fence.Remove(); err != nil {
		f.Log.Warn("cannot remove the fence", "err", err)
	}
}

// Apply takes in the configuration. What [Flat.VIPs] returns is that of c from then on, of
// which Moved is not called.
func (f *Flat) Apply(c Config) {
	f.mu.Lock()
	f.config = c
	f.decide()
	f.moved = false
	hardware := f.hardware()
	f.mu.Unlock()
	f.election.Describe(hardware)
	f.Look()
}

// VIPs are what the speaker is to lead: those of the file, each on its links, and the addresses
// of Services that this node is a candidate for. The verdicts are those of their links and
// addresses.
func (f *Flat) VIPs() ([]speaker.VIP, []health.Verdict) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return vips(f.config, f.places), slices.Collect(maps.Values(f.verdicts))
}

// Conflicts are what the wire says of each address.
func (f *Flat) Conflicts() map[netip.Addr]arp.Finding {
	out := make(map[netip.Addr]arp.Finding)
	for _, finding := range f.announcer.Status() {
		out[finding.Addr] = finding
	}
	return out
}

// takeLinks takes in how the links are now.
func (f *Flat) takeLinks(links map[string]link.Link) {
	f.mu.Lock()
	f.links = links
	f.decide()
	hardware := f.hardware()
	f.mu.Unlock()
	f.election.Describe(hardware)
	f.Look()
}

// takeFinding takes in what the wire says of an address.
func (f *Flat) takeFinding(finding arp.Finding) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.ContainsFunc(f.places, func(p place) bool { return p.yield && p.addr == finding.Addr }) {
		f.found[finding.Addr] = finding
		f.updateVerdicts()
	}
}

// decide finds the links of all addresses anew and has the addresses watched. The mutex is held.
func (f *Flat) decide() {
	places := append(placeVIPs(f.config, f.places, link.For), placeServices(f.config, f.Node, f.chosen, f.links)...)
	if !slices.EqualFunc(places, f.places, place.same) {
		f.moved = true
	}
	f.places = places
	if f.acquainted {
		var watched []arp.Watched
		for _, p := range places {
			if p.link != "" {
				watched = append(watched, p.watched())
			}
		}
		f.announcer.Apply(watched)
		clear(f.found)
		if slices.ContainsFunc(places, func(p place) bool { return p.yield }) {
			f.found = f.Conflicts() // what was found under another policy counts under the new one
		}
	}
	f.updateVerdicts()
}

// updateVerdicts makes verdicts of what is known, and has the speaker told of those that are new. The
// mutex is held.
func (f *Flat) updateVerdicts() {
	verdicts := verdictsOf(f.places, f.links, f.found)
	now := time.Now()
	for name, v := range verdicts {
		if old, ok := f.verdicts[name]; ok && old.State == v.State && old.Reason == v.Reason {
			verdicts[name] = old
			continue
		}
		v.Since, v.Cause = now, now
		verdicts[name] = v
		f.untold[name] = true
	}
	f.verdicts = verdicts
	if len(f.untold) > 0 || f.moved {
		wake.Up(f.tell)
	}
}

// hardware is where the others may see what this node answers for: on the links of its
// VIPs and, with Services, on any with a subnet. The mutex is held.
func (f *Flat) hardware() (macs []net.HardwareAddr) {
	used := make(map[string]bool)
	for _, p := range f.places {
		used[p.link] = true
	}
	for _, name := range slices.Sorted(maps.Keys(f.links)) {
		l := f.links[name]
		if len(l.MAC) > 0 && (used[name] || f.Services != nil && len(l.Prefixes) > 0) {
			macs = append(macs, l.MAC)
		}
	}
	return macs
}

// tellSpeaker passes on what is decided until ctx is done.
func (f *Flat) tellSpeaker(ctx context.Context) {
	wake.Loop(ctx, f.tell, func() (never time.Time) {
		f.mu.Lock()
		var verdicts []health.Verdict
		for name := range f.untold {
			if v, ok := f.verdicts[name]; ok {
				verdicts = append(verdicts, v)
			}
		}
		clear(f.untold)
		moved := f.moved
		f.moved = false
		f.mu.Unlock()
		for _, v := range verdicts {
			f.speaker.Observe(v)
		}
		if moved {
			f.Moved()
		}
		return never
	})
}

// watchMembers looks at members and Services, at intervals and when something has changed, until
// ctx is done.
func (f *Flat) watchMembers(ctx context.Context) {
	began := time.Now()
	wake.Loop(ctx, f.look, func() time.Time {
		late := time.Since(began) >= acquaintance
		f.learnHardware(late)
		f.askAsNode()
		f.standForServices(late)
		return time.Now().Add(lookInterval)
	})
}

// Look has members and Services looked at now.
func (f *Flat) Look() { wake.Up(f.look) }

// learnHardware learns where the members' VIPs may be seen. Addresses are watched when all
// voters have said so, or late.
func (f *Flat) learnHardware(late bool) {
	hardware := f.election.Hardware()
	f.announcer.Members(slices.Concat(slices.Collect(maps.Values(hardware))...)) // also those without a vote
	f.mu.Lock()
	defer f.mu.Unlock()
	silent := func(member string) bool { return len(hardware[member]) == 0 }
	if !f.acquainted && (late || len(f.config.Members) > 0 && !slices.ContainsFunc(f.config.Members, silent)) {
		f.acquainted = true
		f.decide()
	}
}

// standForServices decides for which addresses of Services this node stands. met says that it has
// had the time to hear of the other nodes.
func (f *Flat) standForServices(met bool) {
	if f.Services == nil {
		return
	}
	st := f.election.Status()
	holds := make(map[string]bool)
	for _, l := range st.Lease.Leases {
		holds[l.Lease] = l.Holder == f.Node
	}
	f.mu.Lock()
	linger := f.config.Linger
	f.mu.Unlock()
	now := time.Now()
	f.candidacies = f.candidacies.next(now, f.Node, linger, f.Services(), st.Members)
	f.guardServices() // the kernel may be slow: no lock is held meanwhile
	chosen := f.candidacies.choose(f.Node, holds, met)
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.EqualFunc(chosen, f.chosen, Address.sameClaim) {
		f.chosen = chosen
		f.decide()
	}
}

// guarded is what the fence knows of Services.
type guarded struct {
	addrs map[netip.Addr]bool
	err   error // why it does not know of all
}

// guardServices tells the fence which addresses are of Services: also those that this node is no
// candidate for, so that the kernel does not answer for what kube-proxy has put on another link.
func (f *Flat) guardServices() {
	addrs := f.candidacies.addresses()
	if f.Fence == nil || f.guarded.err == nil && maps.Equal(addrs, f.guarded.addrs) {
		return
	}
	err := f.Fence.FilterServices(slices.Collect(maps.Keys(addrs))...)
	if err != nil && (f.guarded.err == nil || f.guarded.err.Error() != err.Error()) {
		f.Log.Error("the fence does not know the addresses of Services", "err", err)
	}
	f.guarded = guarded{addrs, err}
}

// askAsNode has the kernel ask for IPv4 neighbours in the node's own name on the links of
// VIPs, and logs it once where it cannot.
func (f *Flat) askAsNode() {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := askAsNode(f.places)
	if err != nil && !f.asksAsVIP {
		f.Log.Warn("the kernel may ask for neighbours in the name of a VIP", "err", err)
	}
	f.asksAsVIP = err != nil
}
