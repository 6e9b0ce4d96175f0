package election

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/herald-vip/herald/election/advertisement"
	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/testenv/recorder"
	"github.com/herald-vip/herald/testenv/wait"
)

func TestMain(m *testing.M) {
	// A last probe in progress when memberlist shuts down ends by itself within two seconds.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"))
}

// cluster is an election among the members m1, m2 and so on.
type cluster struct {
	t       testing.TB
	listen  Listener
	members []*member
}

// member is a member of a cluster and its own handler.
type member struct {
	*Election
	t      testing.TB
	name   string
	home   netip.AddrPort // its address, independent of its configuration
	config *Config
	log    *recorder.Log

	mu       sync.Mutex
	held     map[string]lease.Granted
	story    []string // delivered events, without renewals
	seen     []string // members alive by the last event
	on       func(event lease.Event)
	given    [][]advertisement.MemberState // each list of member states delivered
	onStates func()                        // called on each delivery
}

// newCluster returns a cluster at these addresses that does not run yet. It is closed when the test ends.
func newCluster(t testing.TB, listen Listener, at []netip.AddrPort, change func(*Config)) *cluster {
	c := &cluster{t: t, listen: listen}
	all := make(map[string]netip.AddrPort)
	for i, a := range at {
		all[fmt.Sprintf("m%d", i+1)] = a
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		config := &Config{Self: name, Settings: electorate.Settings{Members: all, Keys: [][]byte{key(1)}, Lease: 600 * time.Millisecond}}
		if change != nil {
			change(config)
		}
		c.add(config)
	}
	return c
}

// add adds a member that does not run yet.
func (c *cluster) add(config *Config) *member {
	m := &member{t: c.t, name: config.Self, home: config.home(), config: config, log: &recorder.Log{}, held: make(map[string]lease.Granted)}
	m.Election = New(m.log.Logger(), m)
	m.listen = c.listen
	c.members = append(c.members, m)
	c.t.Cleanup(func() {
		if err := m.Close(); err != nil {
			c.t.Errorf("close %s: %v", m.name, err)
		}
		if c.t.Failed() {
			c.t.Logf("%s was told: %v\nlog:\n%v", m.name, m.story, m.log)
		}
	})
	return m
}

// start applies the members' configurations and makes all of them candidates for these leases.
func (c *cluster) start(leases ...string) {
	c.t.Helper()
	for _, m := range c.members {
		m.apply(nil)
		for _, name := range leases {
			m.Campaign(lease.Candidacy{Lease: name})
		}
	}
}

// apply changes and applies the member's configuration.
func (m *member) apply(change func(*Config)) {
	m.t.Helper()
	if change != nil {
		m.config = m.config.clone()
		change(m.config)
	}
	if err := m.Apply(m.config); err != nil {
		m.t.Fatalf("%s: %v", m.name, err)
	}
}

// reload applies the members' configurations.
func reload(members ...*member) {
	for _, m := range members {
		m.apply(nil)
	}
}

// holds reports whether the member may serve under a lease now.
func (m *member) holds(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	g, ok := m.held[name]
	return ok && time.Now().Before(g.Until)
}

// holders returns the members that hold a lease. If there are two, it checks the first again after the second.
func (c *cluster) holders(name string) []*member {
	without := func(m *member) bool { return !m.holds(name) }
	all := slices.DeleteFunc(slices.Clone(c.members), without)
	if len(all) > 1 {
		all = slices.DeleteFunc(all, without)
	}
	return all
}

// holder waits until exactly one member, one of among, holds a lease.
func (c *cluster) holder(name string, among ...*member) *member {
	c.t.Helper()
	var found *member
	wait.Until(c.t, "one member holds "+name, func() bool {
		all := c.holders(name)
		if len(all) > 1 {
			c.t.Fatalf("%s and %s hold %s", all[0].name, all[1].name, name)
		}
		if len(all) == 0 || len(among) > 0 && !slices.Contains(among, all[0]) {
			return false
		}
		found = all[0]
		return true
	})
	return found
}

// others returns all members but one.
func (c *cluster) others(but *member) []*member {
	return slices.DeleteFunc(slices.Clone(c.members), func(m *member) bool { return m == but })
}

// met waits until all members are alive to each other.
func (c *cluster) met(members ...*member) {
	c.t.Helper()
	if len(members) == 0 {
		members = c.members
	}
	for _, m := range members {
		for _, other := range members {
			wait.Until(c.t, other.name+" is alive to "+m.name, func() bool { return m.alive(other.name) })
		}
	}
}

// alive reports whether another member is alive to this one.
func (m *member) alive(other string) bool {
	return slices.ContainsFunc(m.Status().Members, func(s Member) bool { return s.Name == other && s.Alive })
}

// told returns the events delivered since the last call.
func (m *member) told() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	story := m.story
	m.story = nil
	return story
}

func (m *member) tell(e lease.Event) {
	m.mu.Lock()
	switch e := e.(type) {
	case lease.Granted:
		if m.held[e.Lease].Epoch != e.Epoch {
			m.story = append(m.story, "granted "+e.Lease)
		}
		m.held[e.Lease] = e
	case lease.Lost:
		delete(m.held, e.Lease)
		m.story = append(m.story, "lost "+e.Lease)
	case lease.Transfer:
		m.story = append(m.story, "yield "+e.Lease+" to "+e.To)
	}
	on := m.on
	m.mu.Unlock()
	if on != nil {
		on(e)
	}
}

// Granted implements Handler.
func (m *member) Granted() {
	for _, l := range m.Status().Lease.Leases {
		if l.Holder == m.name && l.Campaigning {
			m.tell(lease.Granted{Lease: l.Lease, Epoch: l.Epoch, Until: l.Until})
		}
	}
}

// Lost implements Handler.
func (m *member) Lost(all []lease.Lost) {
	for _, e := range all {
		m.tell(e)
	}
}

// Transfer implements Handler.
func (m *member) Transfer(all []lease.Transfer) {
	for _, e := range all {
		m.tell(e)
	}
}

// AliveChanged implements Handler.
func (m *member) AliveChanged(alive []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen = alive
}

// MemberStatesChanged implements Handler.
func (m *member) MemberStatesChanged(all []advertisement.MemberState) {
	m.mu.Lock()
	m.given = append(m.given, all)
	onStates := m.onStates
	m.mu.Unlock()
	if onStates != nil {
		onStates()
	}
}

// sees returns the members that are alive by the last event.
func (m *member) sees() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen
}

// stepDown releases a lease as a speaker does: it ends its service first.
func (m *member) stepDown(name string) {
	m.mu.Lock()
	delete(m.held, name)
	m.mu.Unlock()
	m.StepDown(name)
	m.mu.Lock()
	delete(m.held, name) // Granted may have read the status before
	m.mu.Unlock()
}

// react calls do at each event.
func (m *member) react(do func(lease.Event)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.on = do
}

// crash ends the member without a message, as SIGKILL does.
func (m *member) crash() {
	m.Election.mu.Lock()
	n := m.node
	m.node = nil
	m.Election.mu.Unlock()
	n.mu.Lock()
	n.over = true
	n.mu.Unlock()
	n.cancel()
	if err := n.network.list.Shutdown(); err != nil {
		m.t.Error(err)
	}
	n.notifying.Wait()
	n.work.Wait()
	m.mu.Lock()
	clear(m.held)
	m.mu.Unlock()
}

// heard returns the members admitted by this one, itself included.
func (m *member) heard() map[string]netip.AddrPort {
	m.node.mu.Lock()
	defer m.node.mu.Unlock()
	return m.node.admitted
}

func ap(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

func trio() map[string]netip.AddrPort {
	return map[string]netip.AddrPort{"m1": ap("10.0.0.1:7946"), "m2": ap("10.0.0.2:7946"), "m3": ap("10.0.0.3:7946")}
}

// allAlive returns the members that are alive to this one.
func (m *member) allAlive() []string {
	if n := m.running(); n != nil {
		return n.alive()
	}
	return nil
}
