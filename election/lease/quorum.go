package lease

import "github.com/herald-vip/herald/election/electorate"

func (m *Machine) elected(votes []string) bool {
	return m.active().Elects(votes, m.participants())
}

// participants lists the required voters for quorum None: reachable members that do not abstain. It returns
// nil for other quorums.
func (m *Machine) participants() []string {
	if m.current().Quorum != electorate.None {
		return nil
	}
	names := []string{m.self.member}
	for _, p := range m.peers {
		if p.incarnation != 0 && m.now.Sub(p.received) < m.duration()*2/3 && !p.abstaining {
			names = append(names, p.name)
		}
	}
	return names
}

// reachableVoters lists the voters that might vote for this member, itself included if it has a vote. A voter with an
// older electorate counts, since it is about to receive this electorate.
func (m *Machine) reachableVoters() []string {
	if !m.inForce() {
		return nil
	}
	var names []string
	if m.voter() {
		names = append(names, m.self.member)
	}
	for _, p := range m.peers {
		if m.active().Has(p.name) && p.fresh(m.now, m.duration()) && p.number <= m.state.Committed.Number && m.divergence(p) == "" {
			names = append(names, p.name)
		}
	}
	return names
}

func (m *Machine) electable() bool {
	switch {
	case !m.inForce():
		return false
	case m.active().Quorum == electorate.None:
		return m.voter()
	}
	return len(m.reachableVoters()) >= m.active().Majority()
}

func (m *Machine) watchQuorum() {
	could := m.electable()
	if could && !m.canWin {
		m.canSince = m.now
		if m.candidate() {
			m.probeAll() // the candidacies count from now on
		}
	}
	m.canWin = could
}
