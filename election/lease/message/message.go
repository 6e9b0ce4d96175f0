// Package message defines the lease messages between members and their wire format.
package message

import (
	"cmp"
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/wire"
)

// MaxSize is the maximum size of a message in bytes. It fits the minimum MTU of IPv6 (1,280, RFC 8200 section 5) with
// room for encryption.
const MaxSize = 1200

// Kind distinguishes the items of a message.
type Kind uint8

// Kinds of items. Prepare to Release are PaxosLease's messages.
const (
	// Campaign reports the sender's candidacy for a lease.
	Campaign Kind = iota + 1
	// Prepare requests the promise to refuse lesser ballots.
	Prepare
	// Promise answers a Prepare: promised, and no other process holds the lease.
	Promise
	// Propose requests the lease, or its renewal, from the start of the round.
	Propose
	// Accept answers a Propose: granted.
	Accept
	// Refuse answers a Prepare (round 0) or a Propose.
	Refuse
	// Release gives up the ballot and all lesser ones of the sender.
	Release
	// Unchanged confirms all candidacies of the sender: Lease is their digest.
	Unchanged
	// Repeat requests all Campaign items again: the receiver's last Unchanged does not match.
	Repeat
)

// Item is the part of a message about one lease.
type Item struct {
	Kind    Kind
	Lease   uint64 // ID of its name; for Unchanged the digest, for Repeat 0
	Counter uint64 // of the ballot: the sender's in a request, the receiver's in an answer
	Round   uint64 // Propose and its answers: counts the sender's proposals

	Promised  uint64        // Refuse: greatest counter promised so far
	Remaining time.Duration // Refuse: how long the sender will keep refusing; 0: another ballot may succeed

	Priority    int    // Campaign
	Preempt     bool   // Campaign
	Campaigning bool   // Campaign: false ends the candidacy
	Epoch       uint64 // Campaign: epoch of the lease if the sender holds it, else 0
	To          string // Release: the successor; empty: none
}

// Message is one datagram between two members.
type Message struct {
	From        string // sending member
	Incarnation uint64 // of the sender's process
	Receiver    uint64 // identity of the receiving process, or of its member while the sender does not know the process
	Sequence    uint64 // of the messages from this sender to this receiver, from 1
	Cluster     uint64 // of the sender's committed electorate; 0: none
	Number      uint64 // of that electorate
	Active      uint64 // digest of that electorate
	Desired     uint64 // digest of the sender's desired electorate
	Abstaining  bool   // the sender has started recently and does not vote yet
	Heard       bool   // the sender hears a majority of that electorate; false from earlier releases

	// Electorate is the one of Active, or of Desired if the sender has no committed one; nil: omitted.
	Electorate *electorate.Electorate
	Change     *Change // about the next electorate; nil: none
	Items      []Item
}

// Phase distinguishes the steps of choosing the next electorate (Lamport, "Paxos Made Simple", section 2.2).
type Phase uint8

// Phases of a change.
const (
	// Asked requests the promise to refuse lesser ballots.
	Asked Phase = iota + 1
	// Promised answers Asked: Value was accepted before, by ballot Accepted.
	Promised
	// Proposed requests the acceptance of Value.
	Proposed
	// Accepted answers Proposed.
	Accepted
	// Refused answers either: a ballot above Ballot may succeed.
	Refused
)

// Ballot is the number of an attempt to choose the next electorate. No two attempts share one.
type Ballot struct {
	Counter uint64
	Owner   uint64 // the attempting process, by [Identity]
}

// Less reports whether b is below o.
func (b Ballot) Less(o Ballot) bool {
	return cmp.Or(cmp.Compare(b.Counter, o.Counter), cmp.Compare(b.Owner, o.Owner)) < 0
}

// Change is a step towards the electorate after the sender's.
type Change struct {
	Phase    Phase
	Ballot   Ballot
	Accepted Ballot                 // Promised, if there is a Value
	Value    *electorate.Electorate // Proposed, and optional for Promised
}

// Outgoing is a message and its receiver.
type Outgoing struct {
	To string
	Message
}

// Identity returns the identity of a member's process as a receiver, or of the member if incarnation is 0.
func Identity(name string, incarnation uint64) uint64 {
	return max(wire.Hash(name, incarnation), 1)
}
