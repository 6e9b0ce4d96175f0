// Package lease elects the holders of leases among a few members by PaxosLease
// (Trencséni, Gazsó and Reinhardt, "PaxosLease: Diskless Paxos for Leases",
// 2012): at most one member holds a lease at a time, by local timers alone,
// without clocks that agree; only who the members are is on disk. It is pure: it has no
// clock, goroutine, network, log or randomness. The caller hands in time and messages,
// and takes out messages and events.
//
// Members of the electorate vote. Observers, members without a vote, only stand for
// leases: in the paper's terms they are proposers that are no acceptors.
//
// # Why there is one holder
//
// With quorum [Majority], however clocks are slewed: Linux lets nobody slew one by more than a tenth (adjtimex(2)):
//
//  1. An acceptor grants a lease to one process at a time, for a Duration from
//     when the proposal came. Only time or that process ends a grant.
//  2. A holder counts a grant from before it sent the proposal, and for a fifth less
//     than the Duration. An answer names the ballot and the round that it is for
//     and counts for no other, so delayed and repeated ones extend nothing.
//  3. Two majorities of an electorate share an acceptor; so do those of two
//     electorates that differ by one member. Votes count only between processes that
//     have the same record of the electorate, and a grant outlasts the record that it
//     was made under. With 1 and 2, one process holds the lease, whether it votes or
//     not: only votes of the electorate count.
//  4. A process that is started does not vote for 2 % more than the longest Duration
//     that the one before it may have voted for, which is on its disk: the grants that
//     it may have forgotten are over then.
//  5. A process that releases a lease has ended its use, and never again counts
//     an answer for that ballot or a lesser one. Acceptors refuse these from then
//     on.
//  6. What the caller does late costs nothing: a lease that is over at the time
//     of a call is lost before the call does anything else.
//  7. The electorate is a numbered record, which every member keeps on its disk. A
//     majority of the voters of record n chooses record n+1, once (Paxos), and it
//     differs from n by at most one member: 3 holds for n and n+1. Whoever hears of a
//     greater number takes that record, for good.
//  8. A voter of record n accepts nothing for n+1 before all its grants under records
//     before n have ended. Every majority of n-1 shares a voter with the majority of n
//     that chooses n+1. So no lease of n-1 lasts, nor can be won or renewed, when n+1
//     is in force, and with 3 there is one holder at any time.
//
// An operator's files say what the record is to become, and nothing about 7 and 8
// rests on them: they may differ, change at any time, and be old. Files can do harm in one way:
// members without a record, as many as are a majority of the list that they were all given,
// begin a cluster of their own if they hear of no other within a Duration.
//
// In an open electorate ([Open]) a member has an identity, which it loses with its disk. It comes back as another member,
// so nobody counts on votes that it has forgotten; a restored snapshot of the disk is another matter. 7 and 8 hold whatever
// members desired for.
//
// Unlike in the paper, a greater ballot does not displace a grant; so 1 and 3 need
// no promises. Ballots remain for what they do best: of candidates that start at
// the same time one wins, and released proposals stay released.
//
// # What the caller owes
//
//   - Take a message first, then read the clock: a grant must not seem older than
//     the proposal. A time from before a message was sent breaks 1.
//   - Use a lease no longer than the last [Granted] says, on a monotonic clock
//     that does not stop while the machine runs, and act upon [Lost] before
//     anything is sent.
//   - Stop using a lease before [Machine.StepDown].
//   - Have the state of [Machine.Unsaved] on disk before what [Machine.Take] returns is
//     sent or acted upon, and start the next process with it. Who lost its disk may have
//     forgotten a vote: give it another address or name. Nothing else happens
//     meanwhile: a slow disk delays a start and a change of members, and no renewal.
//   - Authenticate messages: anyone who can write them is trusted.
//
// # How soon there is a holder
//
// Members that hear each other tell so every third of a Duration, and a majority
// of them with a candidate has a holder within three Durations of whatever went
// wrong before: one until old grants and abstentions are over, and the rest for
// lost messages. A released lease takes two round trips. An observer that is no
// candidate speaks a fifteenth as often.
package lease
