package lease

import (
	"time"

	"github.com/herald-vip/herald/election/lease/message"
	"github.com/herald-vip/herald/election/wire"
)

// peerCandidacies are the candidacies of a peer. A Campaign item reports each new or changed one; then a digest
// confirms all of them. Safety does not depend on them.
type peerCandidacies struct {
	byLease map[uint64]*peerCandidacy
	digest  uint64 // of all candidacies
	// confirmed is when the peer last confirmed them, in message number asOf.
	confirmed time.Time
	asOf      uint64
}

// peerCandidacy is one candidacy of a peer.
type peerCandidacy struct {
	priority int
	preempt  bool
	epoch    uint64    // 0: it does not hold the lease
	since    time.Time // unchanged and received without a gap
	seen     time.Time
	sequence uint64 // of the message that reported it
}

func sum(lease uint64, priority int, preempt bool, epoch uint64) uint64 {
	x := wire.Mix(epoch) + uint64(priority)<<1
	if preempt {
		x++
	}
	return wire.Mix(lease ^ wire.Mix(x))
}

func (s *peerCandidacy) sum(lease uint64) uint64 { return sum(lease, s.priority, s.preempt, s.epoch) }

// note records a candidacy and reports whether to consider it.
func (t *peerCandidacies) note(now time.Time, d time.Duration, sequence uint64, it message.Item) bool {
	s := t.byLease[it.Lease]
	switch {
	case sequence < t.asOf || s != nil && s.sequence > sequence:
		return false
	case !it.Campaigning:
		t.drop(it.Lease)
		return s != nil
	case s == nil && len(t.byLease) >= maxLeases:
		return false
	case s == nil:
		if t.byLease == nil {
			t.byLease = map[uint64]*peerCandidacy{}
		}
		s = &peerCandidacy{since: now}
		t.byLease[it.Lease] = s
	default:
		t.digest ^= s.sum(it.Lease)
		if s.priority != it.Priority || s.preempt != it.Preempt || now.Sub(t.last(s)) >= d {
			s.since = now
		}
	}
	s.priority, s.preempt, s.epoch, s.sequence, s.seen = it.Priority, it.Preempt, it.Epoch, sequence, now
	t.digest ^= s.sum(it.Lease)
	return true
}

// confirm records that all candidacies are unchanged, and reports whether they are known. Earlier messages that arrive
// later are void.
func (t *peerCandidacies) confirm(now time.Time, d time.Duration, sequence, digest uint64) bool {
	if t.digest != digest {
		return false
	}
	if now.Sub(t.confirmed) >= d {
		for _, s := range t.byLease {
			if now.Sub(t.last(s)) >= d {
				s.since = now
			}
		}
	}
	t.confirmed, t.asOf = now, sequence
	return true
}

func (t *peerCandidacies) drop(lease uint64) {
	if s := t.byLease[lease]; s != nil {
		t.digest ^= s.sum(lease)
		delete(t.byLease, lease)
	}
}

func (t *peerCandidacies) last(s *peerCandidacy) time.Time { return later(s.seen, t.confirmed) }

func (p *peer) candidacy(now time.Time, d time.Duration, lease uint64) *peerCandidacy {
	if s := p.byLease[lease]; s != nil && p.fresh(now, d) && now.Sub(p.last(s)) < d {
		return s
	}
	return nil
}
