package election

import (
	"log/slog"
	"strings"
	"time"

	"github.com/herald-vip/herald/lease"
)

// lately is how long ago a member was heard for what it said to be news.
const lately = 2 * time.Second

// bulletin tells the log, once each time it changes, who decides and who is kept
// from it: a node that was given another list of members does no harm, and so
// would not be noticed until it is needed.
type bulletin struct {
	log     *slog.Logger
	problem string
	active  uint64
	pending uint64
	odd     map[string]bool // members of another electorate
}

func newBulletin(log *slog.Logger) *bulletin { return &bulletin{log: log, odd: make(map[string]bool)} }

// post tells what is new at now.
func (b *bulletin) post(now time.Time, s lease.Status) {
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
	for _, m := range s.Members {
		if now.Sub(m.Heard) > lately {
			continue // what it is like now is not known
		}
		odd := m.Problem != "" && active != 0 && m.Active != 0 && m.Active != active
		if odd && !b.odd[m.Name] {
			b.log.Warn("a member was given another electorate: its votes do not count here, nor ours there", "member", m.Name, "reason", m.Problem)
		}
		b.odd[m.Name] = odd
	}
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
