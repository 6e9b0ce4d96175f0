package lease

import (
	"fmt"
	"slices"
	"time"

	"github.com/herald-vip/herald/election/electorate"
)

// Open is an electorate whose members come and go by themselves. A member asks for a vote by wishing for an electorate of
// itself alone. The voters desired for the same record as they see the same members, and change it as they change any other:
// that they may see different ones for a moment costs time and no safety.
type Open struct {
	Bootstrap bool          // without a record, this member begins a cluster of its own, unless it hears of one
	Observer  bool          // this member asks for no vote
	Forget    time.Duration // how long a voter may be silent before it loses its vote
}

const (
	// listens is how long a member that begins a cluster first looks for one.
	listens = 3 * time.Second
	// spare is how long a voter may be silent when another member may join in its place. It stands by when it comes back.
	spare = time.Minute
)

// updateDesired derives what the record is to become from what the caller configured and, in an open electorate, from who is
// there. It reports whether that is another than before.
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

// choose is who is to vote in an open electorate, by the rules that this member wants.
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

// eligible reports whether a member without a vote may be given one: it follows the same record, wants the same rules, and
// stands for something, so its checks pass.
func (m *Machine) eligible(p *peer) bool {
	if m.open == nil || m.active().Has(p.name) || !m.agrees(p) || !p.fresh(m.now, m.duration()) || p.abstaining || len(p.byLease) == 0 {
		return false
	}
	alone := m.configured.Electorate
	alone.Members = []string{p.name}
	return p.desired == alone.Digest()
}

// mayLeave reports whether a voter is not to be waited for any more: it has been silent for long, or a member may join in
// its place, in particular one on the same node.
func (m *Machine) mayLeave(name string, join []string) bool {
	p := m.peer(name)
	if p == nil || p.fresh(m.now, m.duration()) {
		return false
	}
	replaced := slices.Contains(electorate.Names(join), electorate.Name(name))
	silent := m.now.Sub(later(p.received, m.started))
	return replaced || silent >= m.open.Forget || silent >= spare && len(join) > 0
}

// isSoleVoter reports whether this member has begun a cluster that nobody has joined: so it is known to be the only voter, and
// may leave it for another.
func (m *Machine) isSoleVoter() bool {
	return m.open != nil && m.state.Committed.Number == 1 && len(m.active().Members) == 1 && m.voter()
}

// isOrphaned reports whether none that has a vote in this member's record is heard, as a voter hears itself: it follows
// those of another cluster then.
func (m *Machine) isOrphaned() bool {
	return m.open != nil && m.inForce() && len(m.reachableVoters()) == 0
}

// Remove takes the vote of a voter that is silent, by its node's name, without waiting until it is forgotten. An error
// says what keeps this member from asking the others for that; whether they agree is seen by the record.
func (m *Machine) Remove(now time.Time, node string) error {
	m.advance(now)
	voters := electorate.Names(m.active().Members)
	i := slices.Index(voters, node)
	switch {
	case m.open == nil:
		return fmt.Errorf("the members are those of the configuration files: remove %s there", node)
	case !m.voter():
		return fmt.Errorf("this node has no vote: run this on a voter, of %v", voters)
	case i < 0:
		return fmt.Errorf("%s has no vote: the voters are %v", node, voters)
	case m.peer(m.active().Members[i]) == nil:
		return fmt.Errorf("%s is this node: stop herald here, and remove it from another voter", node)
	case m.peer(m.active().Members[i]).fresh(m.now, m.duration()):
		return fmt.Errorf("%s is heard, and would get its vote again: stop herald there first", node)
	}
	m.removing = m.active().Members[i]
	m.wake(m.now)
	return nil
}
