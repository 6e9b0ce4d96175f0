package lease

import (
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease/message"
	"github.com/herald-vip/herald/election/wire"
)

// maxLeases limits the leases that one process votes on, and the candidacies that it remembers of one member.
const maxLeases = 8192

// peer is this member's view of another one.
type peer struct {
	name        string
	observer    bool   // without a vote
	incarnation uint64 // 0: never received
	received    time.Time
	joined      time.Time // when the caller last reported its presence
	window      wire.Window

	// Contents of its latest message.
	cluster, number uint64 // of its committed electorate
	active, desired uint64 // digests
	abstaining      bool
	described       *electorate.Electorate // its committed electorate, else its desired one, by its last description; nil: none
	peerCandidacies

	sequence   uint64 // of the last message to it
	queue      []message.Item
	late       []message.Item  // items that may wait a moment for others
	change     *message.Change // to send about the next electorate
	probe      bool            // send it a full keepalive
	told       bool            // it was sent all candidacies one by one
	asked      time.Time       // for all its candidacies
	introduce  bool            // send it this process's identity
	introduced time.Time
}

// begin discards the state of the peer's earlier process.
func (p *peer) begin(incarnation uint64) {
	*p = peer{
		name: p.name, observer: p.observer, incarnation: incarnation, joined: p.joined,
		sequence: p.sequence, introduced: p.introduced, probe: true,
	}
}

// note records the sender's state from a message and reports whether it has changed.
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

// fresh reports whether the peer was received within d, or within its own Duration: it may send less often while the
// Duration changes.
func (p *peer) fresh(now time.Time, d time.Duration) bool {
	if p.described != nil {
		d = max(d, min(p.described.Duration, electorate.MaxDuration))
	}
	return p.incarnation != 0 && now.Sub(p.received) < d
}
