package election

import (
	"fmt"
	"net"
	"net/netip"
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
	Running   bool           // false: no configuration, all other fields are zero
	Address   netip.AddrPort // listening address of this member
	Encrypted bool
	Lease     lease.Status // leases, and members by their lease messages
	Members   []Member     // the same members in the same order, with further details
	Dropped   Dropped
}

// Member describes a member: voters, configured voters, and observers that were received.
type Member struct {
	lease.MemberStatus
	Self      bool // this member; an earlier member on its node is not
	Address   netip.AddrPort
	Alive     bool               // received recently; true for this member
	TCPOnly   bool               // not alive but answers by TCP: something on the path drops UDP
	Hardware  []net.HardwareAddr // addresses at which its VIPs may appear, by its description
	Campaigns int                // number of its candidacies, by its description
}

// Dropped counts received messages that were not processed, and messages that could not be sent, since the start.
type Dropped struct {
	Unknown    uint64 // packets and connections from addresses of no other member
	Unreadable uint64 // from a member's address, but encrypted with another key or not at all
	Malformed  uint64 // decrypted, but neither a lease message nor an advertisement
	Refused    uint64 // messages about nodes that are not members, or at other addresses
	Ignored    uint64 // lease messages and advertisements that are old, repeated, or from no member
	Unsent     uint64 // lease messages and advertisements that could not be sent
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
		Running: true, Address: config.home(), Encrypted: !config.Insecure, Lease: state,
		Dropped: Dropped{
			Unknown: n.admission.Unknown.Load(), Unreadable: n.admission.Unreadable.Load(), Malformed: n.malformed.Load() + malformed,
			Refused: n.admission.Refused.Load(), Ignored: state.Ignored + ignored + n.unjoined.Load(), Unsent: n.network.unsent.Load(),
		},
	}
	alone, votes := len(state.Members) > 1, config.votesIn(state.Active)
	for _, m := range state.Members {
		c, answers := n.members.Last(m.Name)
		at := electorate.Address(m.Member)
		alive := n.isAlive(now, m, votes, patienceWith(state.Active, state.Desired))
		tcpOnly := !alive && !answers.IsZero() && now.Sub(answers) >= patienceWith(state.Active, state.Desired)
		if !alive {
			c.Campaigns = 0
		}
		switch {
		case m.Problem == "":
		case state.Replaced(m):
			m.Problem, tcpOnly = "its node is now another member ("+m.Problem+")", false
		case n.admission.IsUnreadable(at.Addr()):
			m.Problem = "its messages cannot be decrypted: it has another key, or none (" + m.Problem + ")"
		case tcpOnly:
			m.Problem = fmt.Sprintf("UDP does not get through between this node and %s at %v, TCP does: let UDP port %d through the firewalls (%s)",
				m.Name, at, at.Port(), m.Problem)
		}
		alone = alone && (m.Member == config.member() || !alive)
		s.Members = append(s.Members, Member{
			MemberStatus: m, Self: m.Member == config.member(), Address: at, Alive: alive, TCPOnly: tcpOnly, Hardware: c.Hardware, Campaigns: c.Campaigns,
		})
	}
	if home := config.home().Addr(); alone && !present(home) {
		s.Lease.Problem = fmt.Sprintf("no link of this node has %v, the address of %q: "+
			"set nodeName if the file is another node's, else correct the address in election", home, config.Self)
	}
	return s
}

// isAlive reports whether a member is alive. Voters show it by their lease messages; for other pairs, memberlist
// decides.
func (n *node) isAlive(now time.Time, m lease.MemberStatus, votes bool, patience time.Duration) bool {
	return now.Sub(m.Received) < patience || !(votes && m.Voter) && n.members.Joined(m.Member)
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
		if !m.Self && !ready && desired.Has(m.Member) {
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
