package election

import (
	"context"
	"log/slog"
	"maps"
	"strings"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease"
)

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
