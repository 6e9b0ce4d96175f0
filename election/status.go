package election

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
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
	if n.failure != "" {
		state.Problem = n.failure
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
	for i, m := range state.Members {
		state.Members[i].Address = n.members.Locate(m.FullName)
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
		case m.Voter && !m.Alive && m.Received.IsZero():
			m.Problem = fmt.Sprintf("%s is not at %v, its last address: start herald there, or give its new address in election of this node (%s)",
				m.Name, m.Address, m.Problem)
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
	} else if !slices.Equal(active.Members, desired.Members) { // a node is another member: it was reinstalled
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

// statusLog logs each change of the electorate, of the members that are alive, and of members kept out. A node with a
// different list of members does no harm, so it would otherwise go unnoticed until it is needed.
type statusLog struct {
	logger    *slog.Logger
	problem   string
	lag       string
	active    uint64
	desired   uint64
	alive     map[string]bool
	tcpOnly   map[string]bool // members that answer by TCP only, logged and not alive since
	divergent map[string]bool // members with a divergent electorate
}

func newStatusLog(log *slog.Logger) *statusLog {
	return &statusLog{logger: log, alive: make(map[string]bool), tcpOnly: make(map[string]bool), divergent: make(map[string]bool)}
}

func (l *statusLog) log(s Status) {
	l.logElectorate(s.Lease)
	known := make(map[string]bool)
	for _, m := range s.Members {
		if known[m.FullName] = true; !m.Self {
			l.logMember(m)
		}
	}
	for _, told := range []map[string]bool{l.alive, l.tcpOnly, l.divergent} {
		maps.DeleteFunc(told, func(name string, _ bool) bool { return !known[name] })
	}
}

func (l *statusLog) logMember(m Member) {
	if m.Alive != l.alive[m.FullName] {
		alive, gone := slog.LevelInfo, slog.LevelWarn
		if !m.Voter { // observers may be many and change often
			alive, gone = slog.LevelDebug, slog.LevelInfo
		}
		if l.alive[m.FullName] = m.Alive; m.Alive {
			l.logger.Log(context.Background(), alive, "a member is alive", "member", m.Name, "address", m.Address)
		} else {
			l.logger.Log(context.Background(), gone, "a member has left or cannot be reached", "member", m.Name, "address", m.Address)
		}
	}
	if m.TCPOnly && !l.tcpOnly[m.FullName] {
		l.logger.Warn("UDP does not get through between this node and a member, TCP does: let UDP through the firewalls",
			"member", m.Name, "address", m.Address)
	}
	l.tcpOnly[m.FullName] = !m.Alive && (m.TCPOnly || l.tcpOnly[m.FullName])
	if m.Alive && m.Voter { // otherwise its present electorate is unknown or irrelevant
		divergent := m.Divergent && l.active != 0
		if divergent && !l.divergent[m.FullName] {
			l.logger.Warn("the electorate of a member diverges: votes between it and this node do not count", "member", m.Name, "reason", m.Problem)
		}
		l.divergent[m.FullName] = divergent
	}
}

func (l *statusLog) logElectorate(s lease.Status) {
	if s.Problem != l.problem && s.Problem != "" {
		l.logger.Warn("this node takes no part in the election", "reason", s.Problem)
	}
	l.problem = s.Problem
	if s.Lag != l.lag && s.Lag != "" {
		l.logger.Warn("this node has no vote and follows the voters, whose electorate differs from its own", "reason", s.Lag)
	}
	l.lag = s.Lag
	active, desired := digest(s.Active), digest(s.Desired)
	switch {
	case active != l.active && active != 0:
		l.logger.Info("the electorate is in force", describe(s.Active)...)
	case l.desired != 0 && desired == 0 && active != 0:
		l.logger.Info("the change of the electorate was withdrawn", describe(s.Active)...)
	}
	if desired != l.desired && desired != 0 && active != 0 {
		l.logger.Info("the electorate changes once all new members and a majority of the voters have the new one", describe(s.Desired)...)
	}
	l.active, l.desired = active, desired
}

func digest(e *electorate.Electorate) uint64 {
	if e == nil {
		return 0
	}
	return e.Digest()
}

func describe(e *electorate.Electorate) []any {
	return []any{"members", strings.Join(electorate.Names(e.Members), ","), "lease", e.Duration, "quorum", e.Quorum.String()}
}
