package election

import (
	"log/slog"
	"strings"

	"github.com/herald-vip/herald/lease"
)

// bulletin tells the log, once each time it changes, who decides, who is there and
// who is kept from it: a node that was given another list of members does no harm,
// and so would not be noticed until it is needed.
type bulletin struct {
	log     *slog.Logger
	problem string
	active  uint64
	pending uint64
	alive   map[string]bool
	parted  map[string]bool // members that were said to answer by TCP only, and are not alive since
	odd     map[string]bool // members of another electorate
}

func newBulletin(log *slog.Logger) *bulletin {
	return &bulletin{log: log, alive: make(map[string]bool), parted: make(map[string]bool), odd: make(map[string]bool)}
}

// post tells what is new.
func (b *bulletin) post(s Status) {
	b.decides(s.Lease)
	for _, m := range s.Members {
		if m.Name != s.Lease.Self {
			b.member(m)
		}
	}
}

// member tells what is new of another member.
func (b *bulletin) member(m Member) {
	if m.Alive != b.alive[m.Name] {
		if b.alive[m.Name] = m.Alive; m.Alive {
			b.log.Info("a member is alive", "member", m.Name, "address", m.Address)
		} else {
			b.log.Warn("a member has left or cannot be reached", "member", m.Name, "address", m.Address)
		}
	}
	if m.TCPOnly && !b.parted[m.Name] {
		b.log.Warn("UDP does not get through between this node and a member, TCP does: let UDP through the firewalls",
			"member", m.Name, "address", m.Address)
	}
	b.parted[m.Name] = !m.Alive && (m.TCPOnly || b.parted[m.Name])
	if m.Alive { // else what it is like now is not known
		odd := m.Problem != "" && b.active != 0 && m.Active != 0 && m.Active != b.active
		if odd && !b.odd[m.Name] {
			b.log.Warn("a member was given another electorate: its votes do not count here, nor ours there", "member", m.Name, "reason", m.Problem)
		}
		b.odd[m.Name] = odd
	}
}

// decides tells what is new of the electorate.
func (b *bulletin) decides(s lease.Status) {
	if s.Problem != b.problem && s.Problem != "" {
		b.log.Warn("this node takes no part in the election", "reason", s.Problem)
	}
	b.problem = s.Problem
	active, pending := digest(s.Active), digest(s.Pending)
	switch {
	case active != b.active && active != 0:
		b.log.Info("the electorate is in force", describe(s.Active)...)
	case b.pending != 0 && pending == 0 && active != 0:
		b.log.Info("the change of the electorate was taken back", describe(s.Active)...)
	}
	if pending != b.pending && pending != 0 && active != 0 {
		b.log.Info("the electorate changes when all of its members have the new one", describe(s.Pending)...)
	}
	b.active, b.pending = active, pending
}

func digest(e *lease.Electorate) uint64 {
	if e == nil {
		return 0
	}
	return e.Digest()
}

func describe(e *lease.Electorate) []any {
	return []any{"members", strings.Join(e.Members, ","), "lease", e.Duration, "quorum", e.Quorum.String()}
}
