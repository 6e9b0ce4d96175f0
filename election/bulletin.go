package election

import (
	"context"
	"log/slog"
	"maps"
	"strings"

	"github.com/herald-vip/herald/lease"
)

// bulletin tells the log, once each time it changes, who decides, who is there and
// who is kept from it: a node that was given another list of members does no harm,
// and so would not be noticed until it is needed.
type bulletin struct {
	log     *slog.Logger
	problem string
	lag     string
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
	known := make(map[string]bool)
	for _, m := range s.Members {
		if known[m.Name] = true; m.Name != s.Lease.Self {
			b.member(m)
		}
	}
	for _, told := range []map[string]bool{b.alive, b.parted, b.odd} {
		maps.DeleteFunc(told, func(name string, _ bool) bool { return !known[name] })
	}
}

// member tells what is new of another member.
func (b *bulletin) member(m Member) {
	if m.Alive != b.alive[m.Name] {
		alive, gone := slog.LevelInfo, slog.LevelWarn
		if !m.Voter { // there may be many, and they come and go
			alive, gone = slog.LevelDebug, slog.LevelInfo
		}
		if b.alive[m.Name] = m.Alive; m.Alive {
			b.log.Log(context.Background(), alive, "a member is alive", "member", m.Name, "address", m.Address)
		} else {
			b.log.Log(context.Background(), gone, "a member has left or cannot be reached", "member", m.Name, "address", m.Address)
		}
	}
	if m.TCPOnly && !b.parted[m.Name] {
		b.log.Warn("UDP does not get through between this node and a member, TCP does: let UDP through the firewalls",
			"member", m.Name, "address", m.Address)
	}
	b.parted[m.Name] = !m.Alive && (m.TCPOnly || b.parted[m.Name])
	if m.Alive && m.Voter { // else what it is like now is not known, or no matter
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
	if s.Lag != b.lag && s.Lag != "" {
		b.log.Warn("this node has no vote and follows the others, whose configuration is another", "reason", s.Lag)
	}
	b.lag = s.Lag
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
