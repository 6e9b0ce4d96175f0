// Package message is what members say to each other about leases, and how that is
// written on the wire.
package message

import (
	"cmp"
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/wire"
)

// MaxSize is the most bytes that a message takes on the wire: it fits the
// least MTU of IPv6 (1,280, RFC 8200 section 5) with room for encryption.
const MaxSize = 1200

// Kind tells the items of a message apart.
type Kind uint8

// What an item says.
const (
	// Stand is the sender's candidacy for a lease.
	Campaign Kind = iota + 1
	// Prepare asks for the promise to refuse lesser ballots.
	Prepare
	// Promise answers a Prepare: promised, and nobody else holds the lease.
	Promise
	// Propose asks for the lease, or for its renewal, from the round's start.
	Propose
	// Accept answers a Propose: granted.
	Accept
	// Refuse answers a Prepare (round 0) or a Propose.
	Refuse
	// Release gives up the ballot and all lesser ones of the sender.
	Release
	// Unchanged repeats all candidacies of the sender at once: Lease is their digest.
	Unchanged
	// Repeat asks for a Stand for each: the receiver's last Unchanged is not understood.
	Repeat
)

// Item is what a message says about one lease.
type Item struct {
	Kind    Kind
	Lease   uint64 // ID of its name; of Unchanged the digest, of Repeat 0
	Counter uint64 // of the ballot; it is the sender's in a request, the receiver's in an answer
	Round   uint64 // of a Propose and its answers: counts the proposals of the sender

	Promised  uint64        // Refuse: the greatest counter promised so far
	Remaining time.Duration // Refuse: how long the sender will go on refusing, 0 if another ballot might do

	Priority    int    // Stand
	Preempt     bool   // Stand
	Campaigning bool   // Stand: false ends the candidacy
	Epoch       uint64 // Stand: of the lease that the sender holds, 0 if it does not
	To          string // Release: who shall bid first, if anybody
}

// Message is one datagram from a member to another.
type Message struct {
	From        string // the member that sent it
	Incarnation uint64 // of the sender's process
	Receiver    uint64 // stands for the receiver's name and incarnation, or its name alone while the sender does not know the latter
	Sequence    uint64 // of the messages from this sender to this receiver, from 1
	Cluster     uint64 // of the sender's record, 0 if it has none
	Number      uint64 // of that record
	Active      uint64 // digest of the electorate in it
	Desired     uint64 // digest of the electorate that the sender is configured with
	Abstaining  bool   // the sender has started lately and does not vote yet

	// Electorate describes Active, or Desired if the sender has no record; nil if it does not.
	Electorate *electorate.Electorate
	Change     *Change // nil: nothing is said of the next record
	Items      []Item
}

// Phase tells the steps of agreeing on the next record apart (Lamport, "Paxos Made Simple", section 2.2).
type Phase uint8

// What a change says.
const (
	// Asked wants the promise to refuse lesser ballots.
	Asked Phase = iota + 1
	// Promised answers that: Value is what the sender accepted before, by the ballot Accepted.
	Promised
	// Proposed wants the acceptance of Value.
	Proposed
	// Accepted answers that.
	Accepted
	// Refused answers either: a ballot above Ballot might do.
	Refused
)

// Ballot is the number of an attempt to have the next record chosen. No two attempts have the same one.
type Ballot struct {
	Counter uint64
	Owner   uint64 // the process that attempts it, as [Identity] has it
}

// Less reports whether b is below o.
func (b Ballot) Less(o Ballot) bool {
	return cmp.Or(cmp.Compare(b.Counter, o.Counter), cmp.Compare(b.Owner, o.Owner)) < 0
}

// Change is a step towards the record after that of the sender.
type Change struct {
	Phase    Phase
	Ballot   Ballot
	Accepted Ballot                 // Promised, if there is a Value
	Value    *electorate.Electorate // Proposed, and perhaps Promised
}

// Outgoing is a message and the member that it is for.
type Outgoing struct {
	To string
	Message
}

// Identity stands for a member's process as the receiver of a message, or for the
// member if incarnation is 0.
func Identity(name string, incarnation uint64) uint64 {
	return max(wire.Hash(name, incarnation), 1)
}
