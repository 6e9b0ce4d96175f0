package lease

import "time"

// MaxMessage is the most bytes that a message takes on the wire: it fits the
// least MTU of IPv6 (1,280, RFC 8200 section 5) with room for encryption.
const MaxMessage = 1200

// Kind tells the items of a message apart.
type Kind uint8

// What an item says.
const (
	// Stand is the sender's candidacy for a lease.
	Stand Kind = iota + 1
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

	Priority int    // Stand
	Preempt  bool   // Stand
	Standing bool   // Stand: false ends the candidacy
	Epoch    uint64 // Stand: of the lease that the sender holds, 0 if it does not
	To       string // Release: who shall bid first, if anybody
}

// Message is one datagram from a member to another.
type Message struct {
	From        string // the member that sent it
	Incarnation uint64 // of the sender's process
	Receiver    uint64 // stands for the receiver's name and incarnation, or its name alone while the sender does not know the latter
	Sequence    uint64 // of the messages from this sender to this receiver, from 1
	Active      uint64 // digest of the sender's active electorate, 0 if it has none
	Pending     uint64 // digest of the electorate it is about to take, 0 if none
	Abstaining  bool   // the sender has started lately and does not vote yet
	Settled     bool   // no vote of the sender for a candidate of an electorate before Active is left

	// Electorates describe Active and Pending, now and then.
	Electorates []Electorate
	Items       []Item
}

// Outgoing is a message and the member that it is for.
type Outgoing struct {
	To string
	Message
}
