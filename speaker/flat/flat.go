// Package flat observes the conditions of VIPs on a flat layer 2 besides their own checks: their
// links, other hosts that use their addresses, and the Services' addresses that this node is a
// candidate for. It also connects the speaker with the election of lease holders.
//
// Methods store each observation, and pure functions (place.go, services.go) derive places and verdicts from it. One
// goroutine passes changes on to the speaker and holds no lock meanwhile. Events of the election and of the fence
// bypass it: the goroutine that raises them calls the speaker.
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
	// lookInterval is the interval at which watchMembers reads the members' MAC addresses.
	lookInterval = time.Second
	// discoveryTime is the maximum wait for all members to advertise their MAC addresses. After
	// it, a host with an unknown MAC address counts as a stranger.
	discoveryTime = 3 * time.Second
)

// Speaker acts on observations before its methods return; [speaker.Speaker] implements it.
type Speaker interface {
	Observe(health.Verdict)
	LeasesChanged()
	FenceClosed()
}

// Address is a Service's address that this node may hold on a flat layer 2. Its lists and maps are read-only.
type Address struct {
	Addr netip.Addr
	// Pool names its address pool.
	Pool string
	// Service is the key of its Service: of the oldest, if several share the address.
	Service string
	// Interfaces lists the links that may carry it; empty means the link with its subnet.
	Interfaces []string
	// Nodes names the nodes that may hold it, in order, this node included.
	Nodes []string
	// Preferred maps nodes to their preference ([rendezvous.Candidacy]). With Preempt the address moves from its
	// holder to a node of higher preference.
	Preferred map[string]int
	Preempt   bool
	// Apart is the other address of the Service, which another node should hold; the zero Addr means none.
	Apart netip.Addr

	holdsApart bool // this node holds Apart, so that it campaigns for this address with the lowest priority
}

// Options holds the settings that last for the life of the process.
type Options struct {
	// Watcher reports changes of links.
	Watcher *rtnetlink.Watcher
	Log     *slog.Logger
	Node    string
	// Refresh is passed to [arp.Options].
	Refresh time.Duration
	// Fence is nil on kernels without one.
	Fence *fence.Fence
	// Services returns the Services' addresses that this node may hold; a nil function means that
	// there are none. Call [Flat.Look] when the result changes.
	Services func() []Address
	// Moved is called after the result of [Flat.VIPs] has changed.
	Moved func()
	// MemberStates is called with the states of all members after each change.
	MemberStates func([]election.MemberState)
}

// Config holds the settings that a reload may change.
type Config struct {
	// VIPs lists all VIPs of the file. Interface may be empty for a VIP on a flat layer 2.
	VIPs []speaker.VIP
	// Yield names the VIPs that this node gives up when another host uses one of their addresses (onConflict: yield).
	Yield map[string]bool
	// Members names the voters of the file. If it is empty, the wait for MAC addresses lasts the full [discoveryTime].
	Members []string
	// Lifetime and Linger apply to the addresses of Services.
	Lifetime, Linger time.Duration
}

// Lifetime returns how long addresses on a flat layer 2 outlive a killed or suspended process: the lease in whole
// seconds, and at least 2 s. The kernel counts in seconds and may expire an address early.
func Lifetime(lease time.Duration) time.Duration {
	const least = 2 * time.Second
	return max(least, (lease + time.Second - 1).Truncate(time.Second))
}

// LeasesOf names the leases of a VIP: of its name, which earlier releases know, and of its addresses in ascending order,
// so that no two nodes wait for each other. The address of a Service has no name beside it.
func LeasesOf(name string, addrs ...netip.Addr) []string {
	var leases []string
	for _, addr := range slices.SortedFunc(slices.Values(addrs), netip.Addr.Compare) {
		leases = append(leases, addr.String())
	}
	if name == "" || slices.Contains(leases, name) {
		return leases
	}
	return slices.Insert(leases, 0, name)
}

// Flat connects a speaker with the links, neighbours and members that its VIPs on a flat layer 2 depend on.
type Flat struct {
	Options
	election  *election.Election
	announcer *arp.Announcer
	speaker   Speaker

	look chan struct{} // wakes watchMembers
	tell chan struct{} // wakes tellSpeaker

	leaving atomic.Bool // this node is leaving, which changes the member states that it receives

	candidacies candidacies         // only watchMembers uses this and the next two
	filtered    map[netip.Addr]bool // Services' addresses last passed to the fence
	unfiltered  error               // result of that call

	mu           sync.Mutex // guards the fields below
	config       Config
	links        map[string]link.Link // nil until they are known
	membersKnown bool                 // all members' MAC addresses are known, or discoveryTime has passed
	chosen       []Address            // Services' addresses that this node campaigns for
	found        map[netip.Addr]arp.Finding
	places       []place
	verdicts     map[string]health.Verdict
	untold       map[string]bool // names of changed verdicts, not yet passed on to the speaker
	moved        bool            // places have changed, and Moved has not been called since
	asksAsVIP    bool            // the last try to set arp_announce failed
}

// New returns a Flat, not yet running, and the speaker that newSpeaker makes of its parts and its election.
func New[S Speaker](o Options, newSpeaker func(speaker.FlatParts, *election.Election) S) (*Flat, S) {
	f := &Flat{
		Options: o, look: make(chan struct{}, 1), tell: make(chan struct{}, 1),
		found: make(map[netip.Addr]arp.Finding), untold: make(map[string]bool),
	}
	leases := &Leases{}
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

// Election returns the election that grants the leases.
func (f *Flat) Election() *election.Election { return f.election }

// announcer announces an address to the neighbours once the kernel accepts packets for it.
type announcer struct {
	*arp.Announcer
	log *slog.Logger
}

// Announce implements [speaker.Announcer].
func (a announcer) Announce(until time.Time, linkName string, addrs ...netip.Addr) error {
	for _, addr := range addrs {
		if err := link.AwaitLocal(addr); err != nil {
			a.log.Warn("connections to the VIP may fail at first", "err", err)
		}
	}
	return a.Announcer.Announce(until, linkName, addrs...)
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

// Close leaves the election and removes the fence, if clean: no address is bound any more. Otherwise the kernel may still answer
// for some. So Close leaves both: the fence closes at the end of these leases, which no member releases before. The speaker has
// stepped down from all others.
func (f *Flat) Close(clean bool) {
	f.leaving.Store(true)
	if !clean {
		f.Log.Warn("the fence and the leases of addresses that could not be withdrawn end by themselves")
		return
	}
	if err := f.election.Close(); err != nil {
		f.Log.Warn("cannot leave the election", "err", err)
	}
	if f.Fence == nil {
		return
	}
	if err := f.Fence.Remove(); err != nil {
		f.Log.Warn("cannot remove the fence", "err", err)
	}
}

// Apply replaces the configuration. [Flat.VIPs] returns the VIPs of c from then on; Apply does not call Moved for them.
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

// VIPs returns the VIPs for the speaker: the file's VIPs, each on its links, and the Services' addresses that this node
// campaigns for. The verdicts tell the health of their links and addresses.
func (f *Flat) VIPs() ([]speaker.VIP, []health.Verdict) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return vips(f.config, f.places), slices.Collect(maps.Values(f.verdicts))
}

// Conflicts returns the last finding of ARP or NDP for each address.
func (f *Flat) Conflicts() map[netip.Addr]arp.Finding {
	out := make(map[netip.Addr]arp.Finding)
	for _, finding := range f.announcer.Status() {
		out[finding.Addr] = finding
	}
	return out
}

// takeLinks stores the state of all links.
func (f *Flat) takeLinks(links map[string]link.Link) {
	f.mu.Lock()
	f.links = links
	f.decide()
	hardware := f.hardware()
	f.mu.Unlock()
	f.election.Describe(hardware)
	f.Look()
}

// takeFinding stores a finding of ARP or NDP, if a VIP yields the address.
func (f *Flat) takeFinding(finding arp.Finding) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.ContainsFunc(f.places, func(p place) bool { return p.yield && p.addr == finding.Addr }) {
		f.found[finding.Addr] = finding
		f.updateVerdicts()
	}
}

// decide places all addresses again and watches them. The caller holds the mutex.
func (f *Flat) decide() {
	places := append(placeVIPs(f.config, f.places, link.Finder()), placeServices(f.config, f.Node, f.chosen, f.links)...)
	if !slices.EqualFunc(places, f.places, place.same) {
		f.moved = true
	}
	f.places = places
	if f.membersKnown {
		var watched []arp.Watched
		for _, p := range places {
			if p.link != "" {
				watched = append(watched, p.watched())
			}
		}
		f.announcer.Apply(watched)
		clear(f.found)
		if slices.ContainsFunc(places, func(p place) bool { return p.yield }) {
			f.found = f.Conflicts() // findings under the previous policy still count
		}
	}
	f.updateVerdicts()
}

// updateVerdicts derives the verdicts again and schedules the changed ones for the speaker. The caller holds the mutex.
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

// hardware lists the MAC addresses that may answer for this node's VIPs: of the VIPs' links and,
// with Services, of all links with a subnet. The caller holds the mutex.
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

// tellSpeaker passes changes on to the speaker until ctx is done.
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

// watchMembers reads members and Services, at intervals and after changes, until ctx is done.
func (f *Flat) watchMembers(ctx context.Context) {
	began := time.Now()
	wake.Loop(ctx, f.look, func() time.Time {
		late := time.Since(began) >= discoveryTime
		f.learnHardware(late)
		f.askAsNode()
		f.campaignForServices(late)
		return time.Now().Add(lookInterval)
	})
}

// Look makes watchMembers read members and Services now.
func (f *Flat) Look() { wake.Up(f.look) }

// learnHardware reads the members' MAC addresses. The watch for conflicts begins when all voters
// have advertised theirs, or when late.
func (f *Flat) learnHardware(late bool) {
	hardware := f.election.Hardware()
	f.announcer.Members(slices.Concat(slices.Collect(maps.Values(hardware))...)) // members without a vote included
	f.mu.Lock()
	defer f.mu.Unlock()
	unknown := func(member string) bool { return len(hardware[member]) == 0 }
	if !f.membersKnown && (late || len(f.config.Members) > 0 && !slices.ContainsFunc(f.config.Members, unknown)) {
		f.membersKnown = true
		f.decide()
	}
}

// campaignForServices decides which Services' addresses this node campaigns for. membersKnown reports
// that it has had time to discover the other nodes.
func (f *Flat) campaignForServices(membersKnown bool) {
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
	f.filterServices() // without a lock, since the kernel may be slow
	chosen := f.candidacies.choose(f.Node, holds, membersKnown)
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.EqualFunc(chosen, f.chosen, Address.sameClaim) {
		f.chosen = chosen
		f.decide()
	}
}

// filterServices passes all Services' addresses to the fence, even without a candidacy here: kube-proxy
// may have bound one to another link, and the kernel must not answer for it.
func (f *Flat) filterServices() {
	addrs := f.candidacies.addresses()
	if f.Fence == nil || f.unfiltered == nil && maps.Equal(addrs, f.filtered) {
		return
	}
	err := f.Fence.FilterServices(slices.Collect(maps.Keys(addrs))...)
	if err != nil && (f.unfiltered == nil || f.unfiltered.Error() != err.Error()) {
		f.Log.Error("cannot add the addresses of Services to the fence", "err", err)
	}
	f.filtered, f.unfiltered = addrs, err
}

// askAsNode sets the source of ARP requests on the links of VIPs to the node's own address. It logs
// the first of consecutive failures.
func (f *Flat) askAsNode() {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := askAsNode(f.places)
	if err != nil && !f.asksAsVIP {
		f.Log.Warn("ARP requests of the kernel may name a VIP as their source", "err", err)
	}
	f.asksAsVIP = err != nil
}
