package lease

import (
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease/message"
	"github.com/herald-vip/herald/election/wire"
)

// maxLeases bounds the leases that one process votes on, and the candidacies
// that it remembers of one member.
const maxLeases = 8192

// peer is what this member knows of another one.
type peer struct {
	name        string
	observer    bool   // it has no vote
	incarnation uint64 // 0: never heard
	received    time.Time
	joined      time.Time // the caller last said that it is there
	window      wire.Window

	// What its latest message said.
	cluster, number uint64 // of its record
	active, desired uint64 // digests
	abstaining      bool
	described       *electorate.Electorate // its record or, if it has none, its desired; as it said last, nil: it did not
	peerCandidacies

	sequence   uint64 // of the last message to it
	queue      []message.Item
	late       []message.Item  // that may wait a moment for others
	change     *message.Change // to be said of the next record
	probe      bool            // tell it everything
	told       bool            // of all candidacies, one by one
	asked      time.Time       // to do the same
	introduce  bool            // tell it who we are
	introduced time.Time
}

// begin forgets what an earlier process of the peer has said.
func (p *peer) begin(incarnation uint64) {
	*p = peer{
		name: p.name, observer: p.observer, incarnation: incarnation, joined: p.joined,
		sequence: p.sequence, introduced: p.introduced, probe: true,
	}
}

// note takes what a message says about its sender, and reports whether it is news.
func (p *peer) note(msg *message.Message) bool {
	current := [...]any{msg.Cluster, msg.Number, msg.Active, msg.Desired, msg.Abstaining}
	news := current != [...]any{p.cluster, p.number, p.active, p.desired, p.abstaining}
	p.cluster, p.number, p.active, p.desired, p.abstaining = msg.Cluster, msg.Number, msg.Active, msg.Desired, msg.Abstaining
	if e := msg.Electorate; e != nil {
		digest := msg.Desired
		if msg.Number > 0 {
			digest = msg.Active
		}
		if e.Digest() == digest {
			news, p.described = true, e
		}
	}
	return news
}

// fresh reports whether the peer has been heard within d, or a Duration of its
// own: it may speak less often while a change of the Duration is under way.
func (p *peer) fresh(now time.Time, d time.Duration) bool {
	if p.described != nil {
		d = max(d, min(p.described.Duration, electorate.MaxDuration))
	}
	return p.incarnation != 0 && now.Sub(p.received) < d
}
