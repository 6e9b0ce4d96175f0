package lease

import "time"

// maxLeases bounds the leases that one process votes on, and the candidacies
// that it remembers of one member.
const maxLeases = 8192

// peer is what this member knows of another one.
type peer struct {
	name        string
	guest       bool   // it has no vote
	incarnation uint64 // 0: never heard
	heard       time.Time
	met         time.Time // the caller last said that it is there
	bound       time.Time // until then an earlier process of it may have voted for another holder
	window      window

	// What its latest message said.
	active, pending     uint64
	abstaining, settled bool
	electorates         []*roll // those of its electorates that it has described
	standings

	sequence   uint64 // of the last message to it
	queue      []Item
	late       []Item    // that may wait a moment for others
	greet      bool      // tell it everything
	told       bool      // of all candidacies, one by one
	asked      time.Time // to do the same
	introduce  bool      // tell it who we are
	introduced time.Time
}

// begin forgets what an earlier process of the peer has said, but for how long that
// may be bound by its votes.
func (p *peer) begin(incarnation uint64, bound time.Time) {
	*p = peer{
		name: p.name, guest: p.guest, incarnation: incarnation, met: p.met, bound: later(p.bound, bound),
		sequence: p.sequence, introduced: p.introduced, greet: true,
	}
}

// note takes what a message says about its sender, and reports whether it is news.
func (p *peer) note(msg *Message) bool {
	before := [...]any{p.active, p.pending, p.abstaining, p.settled, len(p.electorates)}
	if msg.Active != p.active || msg.Pending != p.pending {
		var keep []*roll
		for _, r := range p.electorates {
			if r.digest == msg.Active || r.digest == msg.Pending {
				keep = append(keep, r)
			}
		}
		p.electorates = keep
	}
	p.active, p.pending, p.abstaining, p.settled = msg.Active, msg.Pending, msg.Abstaining, msg.Settled
	for _, e := range msg.Electorates {
		r := newRoll(e)
		if (r.digest == p.active || r.digest == p.pending) && p.roll(r.digest) == nil && e.Validate() == nil {
			p.electorates = append(p.electorates, r)
		}
	}
	return before != [...]any{p.active, p.pending, p.abstaining, p.settled, len(p.electorates)}
}

// roll returns an electorate that the peer has described, nil if it has not.
func (p *peer) roll(digest uint64) *roll {
	for _, r := range p.electorates {
		if r.digest == digest {
			return r
		}
	}
	return nil
}

// fresh reports whether the peer has been heard within d, or a Duration of its
// own: it may speak less often while a change of the Duration is under way.
func (p *peer) fresh(now time.Time, d time.Duration) bool {
	for _, r := range p.electorates {
		d = max(d, r.Duration)
	}
	return p.incarnation != 0 && now.Sub(p.heard) < d
}
