package election

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease"
)

// patience is how long a member that is alive may send nothing.
const patience = 2 * time.Second

// Status is this member's view of the election.
type Status struct {
	Running   bool // false: no configuration, all other fields are zero
	Encrypted bool
	Lease     lease.Status // leases, and members by their lease messages
	Members   []Member     // the same members in the same order, with further details
	Dropped   Dropped
}

// Dropped counts received messages that were not processed, since the start.
type Dropped struct {
	Unknown    uint64 // packets and connections from addresses of no other member
	Unreadable uint64 // from a member's address, but encrypted with another key or not at all
	Malformed  uint64 // decrypted, but neither a lease message nor an advertisement
	Refused    uint64 // messages about nodes that are not members, or at other addresses
	Ignored    uint64 // lease messages and advertisements that are old, repeated, or from no member
}

func (n *node) status() Status {
	n.mu.Lock()
	now := n.tick()
	n.flush()
	state := n.machine.Status(now)
	config := n.config
	if n.mute != "" {
		state.Problem = n.mute
	}
	n.mu.Unlock()
	if !config.votes() && n.members.Campaigns() == 0 {
		state.Lag = "" // its list only serves for finding others
	}

	malformed, ignored := n.exchange.Dropped()
	s := Status{
		Running: true, Encrypted: !config.Insecure, Lease: state,
		Dropped: Dropped{
			Unknown: n.admission.Unknown.Load(), Unreadable: n.admission.Unreadable.Load(), Malformed: n.malformed.Load() + malformed,
			Refused: n.admission.Refused.Load(), Ignored: state.Ignored + ignored + n.unjoined.Load(),
		},
	}
	alone, votes := len(state.Members) > 1, config.votesIn(state.Active)
	for _, m := range state.Members {
		description, answers := n.members.Last(m.Name)
		m.Alive = n.isAlive(now, m, votes, patienceWith(state.Active, state.Desired))
		m.TCPOnly = !m.Alive && !answers.IsZero() && now.Sub(answers) >= patienceWith(state.Active, state.Desired)
		if m.Alive {
			m.Campaigns = description.Campaigns
		}
		switch {
		case m.Problem == "":
		case state.Replaced(m):
			m.Problem, m.TCPOnly = "its node is now another member ("+m.Problem+")", false
		case n.admission.IsUnreadable(m.Address.Addr()):
			m.Problem = "its messages cannot be decrypted: it has another key, or none (" + m.Problem + ")"
		case m.TCPOnly:
			m.Problem = fmt.Sprintf("UDP does not get through between this node and %s at %v, TCP does: let UDP port %d through the firewalls (%s)",
				m.Name, m.Address, m.Address.Port(), m.Problem)
		}
		alone = alone && (m.Self || !m.Alive)
		s.Members = append(s.Members, m)
	}
	if home := config.home().Addr(); alone && !present(home) {
		s.Lease.Problem = fmt.Sprintf("no link of this node has %v, the address of %q: "+
			"set nodeName if the file is another node's, else correct the address in election", home, config.Self)
	}
	return s
}

// isAlive reports whether a member is alive. Voters show it by their lease messages; for other pairs, memberlist
// decides.
func (n *node) isAlive(now time.Time, m Member, votes bool, patience time.Duration) bool {
	return now.Sub(m.Received) < patience || !(votes && m.Voter) && n.members.Joined(m.FullName)
}

// patienceWith returns how long a member that is alive may send nothing, under the present and the desired electorate.
// Members send keepalives three times per lease.
func patienceWith(electorates ...*electorate.Electorate) time.Duration {
	d := patience
	for _, e := range electorates {
		if e != nil {
			d = max(d, e.Duration)
		}
	}
	return d
}

func (n *node) alive() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	active, desired := n.machine.Electorates()
	votes := n.config.votesIn(active)
	var names []string
	for _, m := range n.machine.Members(now) {
		if n.isAlive(now, m, votes, patienceWith(active, desired)) && !slices.Contains(names, m.Name) {
			names = append(names, m.Name)
		}
	}
	return names
}

// hearsMajority reports whether enough voters are alive to grant a lease.
func (s Status) hearsMajority() bool {
	voters, alive := 0, 0
	for _, m := range s.Members {
		if m.Voter {
			voters++
			if m.Alive {
				alive++
			}
		}
	}
	return s.Lease.Active != nil && alive > voters/2
}

// Change describes the pending change of the electorate and the members that it waits for; empty if none is pending.
func (s Status) Change() string {
	active, desired := s.Lease.Active, s.Lease.Desired
	if active == nil || desired == nil {
		return ""
	}
	var changes, missing []string
	if before, after := electorate.Names(active.Members), electorate.Names(desired.Members); !slices.Equal(before, after) {
		changes = append(changes, "members "+strings.Join(after, ", "))
	} else if !slices.Equal(active.Members, desired.Members) { // a member has another address
		changes = append(changes, "members "+strings.Join(desired.Members, ", "))
	}
	if active.Duration != desired.Duration {
		changes = append(changes, "lease "+desired.Duration.String())
	}
	if active.Quorum != desired.Quorum {
		changes = append(changes, "quorum "+desired.Quorum.String())
	}
	digest := desired.Digest()
	for _, m := range s.Members {
		ready := m.Problem == "" && m.Desired == digest
		if !m.Self && !ready && desired.Has(m.FullName) {
			missing = append(missing, m.Name)
		}
	}
	text := "to " + strings.Join(changes, ", ") + ", once all of its members have it"
	if len(missing) > 0 {
		text += ": not yet " + strings.Join(missing, ", ")
	}
	return text
}

// Ahead reports that a voter desires another electorate than the one in force and than this node; empty if not.
func (s Status) Ahead(m Member) string {
	if m.Self || m.Problem != "" || !m.Voter || s.Lease.Active == nil {
		return ""
	}
	if m.Desired == s.Lease.Active.Digest() || s.Lease.Desired != nil && m.Desired == s.Lease.Desired.Digest() {
		return ""
	}
	return "has other members, lease or quorum configured than this node"
}
