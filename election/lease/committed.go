package lease

import (
	"fmt"
	"slices"
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease/message"
)

// State is the state that a member must keep across restarts. The JSON names are the file format.
type State struct {
	Committed electorate.Committed `json:"Record"` // the last known one; Number 0: none
	// Longest is the longest lease that this member may have voted for and that may still last.
	Longest time.Duration
	// Promise and acceptance of this member for the next electorate.
	Promised, Accepted message.Ballot
	Value              *electorate.Electorate // the accepted value; nil: none
}

// maxNumber limits numbers that are read, so that a next one always exists.
const maxNumber = 1 << 62

// Validate returns an error for a state that no member can have stored.
func (s State) Validate() error {
	switch {
	case s.Committed.Number == 0 || s.Committed.Number > maxNumber:
		return fmt.Errorf("invalid number of an electorate: %d", s.Committed.Number)
	case s.Promised.Counter > maxNumber:
		return fmt.Errorf("invalid number of a ballot: %d", s.Promised.Counter)
	case s.Longest > electorate.MaxDuration:
		return fmt.Errorf("the longest lease is %v, want at most %v", s.Longest, electorate.MaxDuration)
	}
	err := s.Committed.Validate()
	if err == nil && s.Value != nil && !s.Committed.Leads(*s.Value) {
		err = fmt.Errorf("%v cannot follow electorate %d, %v", s.Value, s.Committed.Number, s.Committed)
	}
	return err
}

// pending is a state on its way to the disk.
type pending struct {
	State
	then   func() // the member's next step, once the state is there; nil: none
	handed bool   // to the caller
}

// stage has a state stored.
func (m *Machine) stage(s State, then func()) { m.pending = &pending{State: s, then: then} }

// Unsaved returns a state to store, once, and whether there is one. It replaces all earlier ones.
func (m *Machine) Unsaved() (State, bool) {
	if m.pending == nil || m.pending.handed {
		return State{}, false
	}
	m.pending.handed = true
	return m.pending.State, true
}

// Stored reports that the last state of [Machine.Unsaved] is on disk.
func (m *Machine) Stored(now time.Time) {
	m.advance(now)
	p := m.pending
	if p == nil || !p.handed {
		return
	}
	if m.pending = nil; p.then != nil {
		p.then()
	}
	m.agree()
	m.wake(m.now)
}

// inForce reports whether there is a committed electorate. Without one, no candidate can win here.
func (m *Machine) inForce() bool { return m.state.Committed.Number > 0 }

// active returns the electorate in force.
func (m *Machine) active() *electorate.Electorate { return &m.state.Committed.Electorate }

// voter reports whether this member has a vote in the electorate in force.
func (m *Machine) voter() bool { return m.inForce() && m.active().Has(m.self.member) }

// desired is an electorate that a member wants committed. Without a committed electorate, it begins the cluster.
type desired struct {
	electorate.Electorate
	digest uint64
}

func newDesired(e electorate.Electorate) desired {
	e.Members = slices.Clone(e.Members)
	return desired{e, e.Digest()}
}

// Reconfigure sets the desired electorate, at any time. The committed electorate approaches it by one member at a time,
// once all new members and a majority of the present voters desire it. A member without a vote in either electorate
// follows the voters.
func (m *Machine) Reconfigure(now time.Time, e electorate.Electorate) error {
	if err := e.Validate(); err != nil {
		return err
	}
	m.advance(now)
	m.configured = newDesired(e)
	m.updateDesired()
	m.updatePeers()
	m.probeAll()
	m.agree()
	m.wake(m.now)
	return nil
}

// SetOpen changes the rules of an open electorate.
func (m *Machine) SetOpen(o Open) { m.open = &o }

// agree performs due work on the committed electorate.
func (m *Machine) agree() {
	m.begin()
	m.change()
	if m.inForce() && !m.now.Before(m.settled) && m.state.Longest != m.active().Duration && m.state.Value == nil && m.pending == nil {
		m.state.Longest = m.active().Duration // leases under earlier electorates are over
		m.stage(m.state, nil)
	}
}

// begin commits the first electorate, once a majority has the same configuration and no committed electorate. A member
// that receives a committed electorate adopts that instead.
func (m *Machine) begin() {
	if m.inForce() || m.observer() {
		return
	}
	if m.pending != nil {
		m.problem = "the first electorate is being written to disk"
		return
	}
	m.problem = ""
	listenUntil := m.abstain.Add(-m.duration() / 20) // early enough to vote and win as soon as this member may
	if m.open != nil {
		listenUntil = later(listenUntil, m.started.Add(listenTime))
	}
	if m.now.Before(listenUntil) && m.desired.Quorum == electorate.Majority {
		m.problem = "waiting for an electorate that the members agreed on before"
		m.wake(listenUntil)
		return
	}
	if m.open != nil && m.desired.Quorum == electorate.Majority {
		if m.problem = m.forestalled(); m.problem != "" {
			return
		}
	}
	var waiting []*peer
	other := ""
	for _, p := range m.peers {
		switch {
		case !m.desired.Has(p.name) || !p.fresh(m.now, m.duration()) || p.number > 0:
		case p.desired == m.desired.digest:
			waiting = append(waiting, p)
		case other == "":
			other = electorate.Name(p.name) + " is configured with " + p.theirs()
		}
	}
	switch {
	case m.desired.Quorum == electorate.None, 1+len(waiting) >= m.desired.Majority():
		m.adopt(electorate.First(m.desired.Electorate, m.seed(waiting)))
	case other != "":
		m.problem = other + ", this member with " + m.desired.String() + ": give all members the same"
	default:
		m.problem = fmt.Sprintf("waiting for a majority of the members: %d of %d have the same configuration", 1+len(waiting), len(m.desired.Members))
	}
}

// learn adopts a peer's committed electorate if it replaces the one here. A peer reports only chosen ones.
func (m *Machine) learn(p *peer, r electorate.Committed) {
	mine := m.state.Committed
	switch {
	case r.Number == 0, r.Number > mine.Number+maxJump, r.Validate() != nil:
	case m.leaves(p, r):
		m.refuseVotes(r.Duration)
		m.adopt(r)
	case r.Has(p.name) && m.isTwin(r) && r.Cluster < mine.Cluster:
		if m.state.Value == nil && (m.pending == nil || m.pending.Value == nil) { // else electorate 2 may be chosen by it
			m.adopt(r)
		}
	case !r.Replaces(mine), mine.Number == 0 && m.open != nil && m.open.Bootstrap && !r.Has(p.name) && !r.Has(m.self.member) && r.OnNode(electorate.Name(m.self.member)):
	case mine.Number == 0 && r.Has(m.self.member) && !m.desired.Has(m.self.member):
		m.problem = fmt.Sprintf("%s reports a vote of this member in %s, but it is configured without one: its earlier votes are forgotten", electorate.Name(p.name), r)
	case mine.Number == 0 && !r.Has(m.self.member) && !p.heard && m.members(r) < r.Majority():
		m.problem = electorate.Name(p.name) + m.lost(r.Electorate)
	default:
		m.adopt(r)
	}
}

// adopt puts a chosen electorate in force: a later one of this member's cluster at once, else once it is on disk
// (rule 12).
func (m *Machine) adopt(r electorate.Committed) {
	s := State{Committed: r, Longest: max(r.Duration, m.state.Longest)}
	leaves := m.inForce() && m.active().Quorum == electorate.Majority && r.Cluster != m.state.Committed.Cluster && !m.isTwin(r)
	switch {
	case m.inForce() && !leaves:
		m.enforce(State{Committed: r, Longest: m.state.Longest})
		m.stage(s, func() { m.state = s })
	case m.pending == nil:
		m.stage(s, func() { m.enforce(s) })
		if leaves {
			m.standStill("this node leaves its cluster for " + r.String())
		}
	}
}

// enforce puts an electorate in force. This member requests the leases that it holds anew, and keeps its votes for
// others until those leases have ended.
func (m *Machine) enforce(s State) {
	if longest := max(s.Longest, s.Committed.Duration); m.inForce() {
		m.settled = m.now.Add(longest + longest/50)
	} else {
		m.refuseVotes(longest)
	}
	m.state, m.digest = s, s.Committed.Electorate.Digest()
	m.problem, m.attempt, m.highestAttempt, m.removing = "", nil, 0, ""
	m.updateDesired()
	m.updatePeers()
	for _, p := range m.peers {
		p.queue, p.late, p.change = nil, nil, nil
	}
	m.watchQuorum()
	for _, l := range m.own {
		switch {
		case !l.holds():
			m.drop(l, "")
		case !m.stuck():
			m.renew(l)
		}
	}
	m.probeAll()
	m.wake(m.now)
}

// refuseVotes makes a restarted member abstain: its earlier process may have voted for leases of that duration
// ("Acceptors restart").
func (m *Machine) refuseVotes(d time.Duration) {
	m.abstain = later(m.abstain, m.started.Add(d+d/50))
	m.settled = later(m.settled, m.abstain)
}

// updatePeers makes peers of the committed and desired members, and of removed members that do not know of their
// removal; it keeps the observers. A returning member reuses its peer, so that sequence numbers continue.
func (m *Machine) updatePeers() {
	names := slices.Concat(m.active().Members, m.desired.Members)
	before := m.peers
	m.lingering = false
	for _, p := range before {
		if !p.observer && p.number < m.state.Committed.Number && p.fresh(m.now, m.duration()) && !slices.Contains(names, p.name) {
			names = append(names, p.name)
			m.lingering = true
		}
	}
	m.peers = slices.DeleteFunc(slices.Clone(before), func(p *peer) bool { return !p.observer || slices.Contains(names, p.name) })
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if name == m.self.member {
			continue
		}
		p := m.known[name]
		if p == nil {
			p = &peer{name: name, sequence: m.forgotten}
			m.known[name] = p
		}
		if !slices.Contains(before, p) {
			p.queue, p.late, p.change, p.probe = nil, nil, nil, true
		}
		p.observer = false
		m.insert(p)
	}
}

// divergence explains why votes cannot count between this member and a peer; empty if they can.
func (m *Machine) divergence(p *peer) string {
	switch mine := m.state.Committed; {
	case mine.Number > 0 && p.number > 0 && p.cluster != mine.Cluster && mine.Quorum == electorate.Majority:
		return fmt.Sprintf("it belongs to another cluster, begun independently, with %s; ours is %s", p.theirs(), mine)
	case mine.Number == 0 && p.number == 0 && p.desired != m.desired.digest && m.open == nil:
		return fmt.Sprintf("its electorate is %s, ours %s", p.theirs(), m.desired)
	}
	return ""
}

func (p *peer) theirs() string {
	if p.described == nil {
		return "another electorate"
	}
	return p.described.String()
}

// notReady lists the members that keep the desired electorate from being committed; nil if none does.
func (m *Machine) notReady() []string {
	var names []string
	for _, name := range m.desired.Members {
		if p := m.peer(name); p != nil && !m.ready(p) {
			names = append(names, name)
		}
	}
	return names
}

// ready reports whether a peer is reachable, shares the desired electorate or is eligible, and votes: a holder may need
// its vote at once.
func (m *Machine) ready(p *peer) bool {
	return p.fresh(m.now, m.duration()) && p.desired == m.desired.digest && !p.abstaining && m.divergence(p) == "" || m.eligible(p)
}
