// Package lease elects the holders of leases among a few members by PaxosLease (Trencséni, Gazsó and Reinhardt,
// "PaxosLease: Diskless Paxos for Leases", 2012). At most one member holds a lease at a time. This needs local timers
// only, no synchronised clocks; the disk stores only the electorate and the choice of the next one. The package is pure:
// it has no clock, goroutine, network, log or randomness. The caller passes time and messages in and takes messages and
// events out.
//
// Members of the electorate vote. Observers are members without a vote that only campaign for leases: in the paper's
// terms, proposers that are not acceptors.
//
// # Why there is one holder
//
// These rules hold with quorum [Majority], while each clock runs at most an eighth fast or slow. The PLL of Linux slews a
// clock by at most that, a quarter of half a second each second. A program that sets the tick slews it by at most a
// tenth (adjtimex(2)). Two programs that do both to one clock break rule 2.
//
//  1. An acceptor grants a lease to one process at a time, for one Duration from the arrival of the proposal. Only
//     expiry or that process ends a grant.
//  2. A holder counts a grant from before it sent the proposal, and for three quarters of the Duration. By a slow clock
//     that is at most 0.86 Durations. By a fast clock, an acceptor grants at least 0.89. An answer names its ballot and
//     round and counts for no other, so delayed or repeated answers extend nothing.
//  3. Two majorities of an electorate share an acceptor; so do majorities of two electorates that differ by one
//     member. Votes count only between processes with the same committed electorate, and a grant outlasts the
//     electorate that it was made under. With 1 and 2, one process holds the lease, whether it votes or not: only
//     votes of the electorate count.
//  4. A restarted process abstains for 2 % more than the longest Duration that its predecessor may have voted for.
//     The disk stores that Duration. Afterwards, no holder counts a forgotten grant any more: the abstention takes
//     at least 0.9 Durations, and the rate of the clock before the restart does not matter.
//  5. A process that releases a lease has stopped using it, and never again counts an answer for that ballot or a
//     lesser one. From then on, acceptors refuse these ballots.
//  6. A late caller breaks nothing: a lease that is over at the time of a call is lost before the call does anything
//     else.
//  7. The committed electorate has a number. A majority of the voters of electorate n chooses electorate n+1, once
//     (Paxos). The two differ by at most one member, so 3 holds for them. A process that learns of a greater number
//     adopts that electorate for good.
//  8. A voter of electorate n accepts nothing for n+1 before all its grants under electorates before n have ended.
//     Every majority of n-1 shares a voter with the majority of n that chooses n+1. So when n+1 is in force, no lease
//     of n-1 lasts, and none can be won or renewed. With 3, there is one holder at any time.
//  9. Each cluster has an identity with a random part. A member leaves its cluster only if the majority of the other is
//     heard, and no majority can miss its promises. So it has no vote, it is the only voter of an open electorate that
//     has never changed, or a majority of its electorate already belongs to the other cluster. Any other voter that left
//     and returned would break 7. A member without an electorate adopts none with a lost majority, unless it has a vote
//     there.
//  10. Voters that begin one electorate at once, with different peers in view, may give it several identities. All take
//     the lesser one, unless they have accepted electorate 2. They are the same voters, so 3 holds across identities,
//     and their grants outlast the change. A voter takes a greater identity by 9 only, so electorate 2 finds a majority
//     under one identity at most.
//  11. Two clusters may begin apart. Once the voters of one receive a member that hears the majority of the other, the
//     lesser cluster stands still. Its leases are lost, and it grants, accepts and requests nothing. Both sides know the
//     lesser one: begun by a member alone, then begun by several and never changed, then of the greater identity.
//  12. A member answers about the next electorate once the answer and the present electorate are on its disk. It votes
//     for leases of a Duration once the disk tells of that, and has a first electorate or another cluster once the disk
//     has. It adopts later electorates of its cluster before they are on disk, so a restart may forget these. The voters
//     of n that chose n+1 never return to an electorate before n, so 8 holds; 4 covers the votes that they forget. A
//     crash during a write leaves the state before it or after it, and the member has acted on neither.
//
// The configuration files state the desired electorate. Rules 7 and 8 do not depend on them: the files may differ, be
// old and change at any time. Files can do harm in one way. Members without a committed electorate
// begin a cluster of their own if they are a majority of their list and receive no electorate within a Duration, or with
// [Open.Bootstrap]. Then 11 holds once the clusters reach each other.
//
// A member is a disk, not an address: promises and abstentions belong to the name that the disk stores. A renumbered
// node keeps it, so no electorate changes, and quorums meet as before. A node runs one process, which is one disk's, and
// its successor abstains by 4. So no two processes vote as one member.
//
// In an open electorate ([Open]) a member has an identity and loses it with its disk. It returns as a different member,
// so forgotten votes do not count. Restoring a snapshot of the disk does break this rule. Rules 7 and 8 hold for any
// desired electorate.
//
// Unlike in the paper, a greater ballot does not displace a grant, so 1 and 3 need no promises. Ballots remain for two
// purposes: of candidates that start at the same time one wins, and released proposals stay released.
//
// # Leases held together
//
// A lease may follow another ([Candidacy.After]). Its candidate bids for it only while it holds the first, and loses or
// releases it with the first, in the same call and to the same successor. It takes no turn: each follower makes a
// takeover longer by one ballot. Members that take their leases in one order never wait for each other in a circle.
//
// # Duties of the caller
//
//   - Take a message first, then read the clock: a grant must not seem older than the proposal. A time from before a
//     message was sent breaks 1.
//   - Call [Machine.Resume] first after the clock has stood still.
//   - Use a lease no longer than the last [Granted] says, by a monotonic clock that does not stop while the machine
//     runs. Act on [Lost] before sending anything.
//   - Stop using a lease and its followers before [Machine.StepDown].
//   - Write each state of [Machine.Unsaved] to disk, one at a time, and call [Machine.Stored] once the latest is there.
//     Meanwhile go on: a slow disk delays a start and a change of members, but no renewal. Start the next process with
//     the state on disk. A member that lost its disk may have forgotten a vote: give it another name, or an address that
//     it never had.
//   - Authenticate messages: anyone who can write them is trusted.
//
// # How soon there is a holder
//
// Members that can reach each other exchange keepalives every third of a Duration. A majority of them with a candidate
// has a holder within three Durations after any fault: one until old grants and abstentions are over, the others for
// lost messages. A released lease takes two round trips. An observer that is not a candidate sends a fifteenth as often.
//
// A member counts as faulty while its caller has acted on no event for three fifths of a Duration
// ([Machine.Unanswered]). It renews no lease and bids for none. So its leases end at most 1.6 Durations after the first
// event on which the caller does not act, and at most two Durations after the caller has stopped.
package lease
