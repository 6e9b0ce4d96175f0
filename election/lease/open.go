package lease

import (
	"fmt"
	"slices"
	"time"

	"github.com/herald-vip/herald/election/electorate"
)

// Open configures an open electorate: members join and leave by themselves. A member requests a vote by desiring
// an electorate of itself alone. Voters that see the same members desire the same electorate, and change it like any
// other. A temporary difference of their views costs time, not safety.
type Open struct {
	Bootstrap bool          // without a committed electorate, this member begins a cluster unless it finds one
	Observer  bool          // this member requests no vote
	Forget    time.Duration // a voter loses its vote after timing out for this long
}

const (
	// listenTime is how long a member looks for a cluster before it begins one.
	listenTime = 3 * time.Second
	// replaceAfter is how long a voter must have timed out before another member may take its place. When the voter
	// returns, it stands by.
	replaceAfter = time.Minute
)

// updateDesired derives the desired electorate from the configuration and, if it is open, from the present members. It
// reports whether the desired electorate has changed.
func (m *Machine) updateDesired() bool {
	before := m.desired.digest
	m.desired = m.configured
	switch {
	case m.open == nil:
	case m.voter():
		m.desired = newDesired(m.choose())
	case m.inForce() || !m.open.Bootstrap:
		m.desired.Members = nil // the voters decide
		if m.open.Observer {
			m.desired.digest = 0
		}
	}
	return m.desired.digest != before
}

// choose returns the desired voters of an open electorate, with this member's rules.
func (m *Machine) choose() electorate.Electorate {
	e := m.configured.Electorate
	e.Members = m.active().Members
	var join []string
	for _, p := range m.peers {
		if m.eligible(p) {
			join = append(join, p.name)
		}
	}
	leave := slices.DeleteFunc(slices.Clone(e.Members), func(name string) bool { return !m.mayLeave(name, join) })
	return e.Choose(leave, join)
}

// eligible reports whether a member without a vote may get one: it has the same committed electorate, desires the same
// rules, and campaigns for a lease, so its checks pass.
func (m *Machine) eligible(p *peer) bool {
	if m.open == nil || m.active().Has(p.name) || !m.agrees(p) || !p.fresh(m.now, m.duration()) || p.abstaining || len(p.byLease) == 0 {
		return false
	}
	alone := m.configured.Electorate
	alone.Members = []string{p.name}
	return p.desired == alone.Digest()
}

// mayLeave reports whether a voter may lose its vote. It has timed out for long, or a member may take its place, in
// particular one on the same node.
func (m *Machine) mayLeave(name string, join []string) bool {
	p := m.peer(name)
	if p == nil || p.fresh(m.now, m.duration()) {
		return false
	}
	replaced := slices.Contains(electorate.Names(join), electorate.Name(name))
	silent := m.now.Sub(later(p.received, m.started))
	return replaced || silent >= m.open.Forget || silent >= replaceAfter && len(join) > 0
}

// Remove takes the vote of a timed-out voter, given its node's name, without waiting for Forget. An error says why this
// member cannot propose that. The committed electorate shows whether the others agree.
func (m *Machine) Remove(now time.Time, node string) error {
	m.advance(now)
	voters := electorate.Names(m.active().Members)
	i := slices.Index(voters, node)
	switch {
	case m.open == nil:
		return fmt.Errorf("the configuration files list the members: remove %s there", node)
	case !m.voter():
		return fmt.Errorf("this node has no vote: run this on a voter, of %v", voters)
	case i < 0:
		return fmt.Errorf("%s has no vote: the voters are %v", node, voters)
	case m.peer(m.active().Members[i]) == nil:
		return fmt.Errorf("%s is this node: stop herald here, and remove it from another voter", node)
	case m.peer(m.active().Members[i]).fresh(m.now, m.duration()):
		return fmt.Errorf("%s is alive, and would get its vote again: stop herald there first", node)
	}
	m.removing = m.active().Members[i]
	m.wake(m.now)
	return nil
}
