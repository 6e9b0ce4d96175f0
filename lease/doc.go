// Package lease elects the holders of leases among a few members by PaxosLease
// (Trencséni, Gazsó and Reinhardt, "PaxosLease: Diskless Paxos for Leases",
// 2012): at most one member holds a lease at a time, by local timers alone,
// without disks and without clocks that agree. It is pure: it has no clock,
// goroutine, network, log or randomness. The caller hands in time and messages,
// and takes out messages and events.
//
// Members of the electorate vote. Guests, members without a vote, only stand for
// leases: in the paper's terms they are proposers that are no acceptors.
//
// # Why there is one holder
//
// With quorum [Majority], as long as no clock runs more than 1 % fast or slow:
//
//  1. An acceptor grants a lease to one process at a time, for a Duration from
//     when the proposal came. Only time or that process ends a grant.
//  2. A holder counts a grant from before it sent the proposal, and for 2 % less
//     than the Duration. An answer names the ballot and the round that it is for
//     and counts for no other, so delayed and repeated ones extend nothing.
//  3. Two majorities of an electorate share an acceptor; so do those of two
//     electorates that differ by one member. With 1 and 2, one process holds the
//     lease, whether it votes or not: only votes of the electorate count.
//  4. A process that is started does not vote for 2 % more than a Duration: the
//     grants that it may have forgotten are over then.
//  5. A process that releases a lease has ended its use, and never again counts
//     an answer for that ballot or a lesser one. Acceptors refuse these from then
//     on.
//  6. What the caller does late costs nothing: a lease that is over at the time
//     of a call is lost before the call does anything else.
//  7. Electorates change by steps of one member. A step begins when every member
//     of the new electorate and a majority of the old one wait for it, and have
//     no vote left for a candidate of any before these. So all electorates under
//     which a candidate can win differ by at most one step. A guest waits for
//     none and is waited for by nobody. It takes an electorate that a voter says
//     is in use, and if that is so no more, then not enough vote for it.
//  8. Before a shorter Duration is used, all members have granted themselves no
//     longer leases for one of the greater: a member that is started with the
//     shorter one abstains long enough. For one that leaves in the same step, or a
//     guest, which may not know that it is to be shorter, they vote only if the
//     question says that it does; and a lease counts for no longer than the shortest
//     that its sender knew of whenever it asked. Who has made the step, while others
//     took the change back, neither votes for a process that is started among these nor
//     counts its votes, until those of the process before it are over.
//  9. A process whose configuration does not have it among the members takes no
//     electorate that does: it may have voted by that, and left it.
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
//   - Stop using a lease before [Machine.Resign].
//   - Start a member with the electorate that it used last, or the step after it
//     if all members were told of the former. Nobody without a disk can tell a
//     new site from the rest of one that was split by two changes at once. For the
//     same reason, start no majority at once with a shorter Duration than it had.
//   - Authenticate messages: whoever can write them is trusted.
//
// # How soon there is a holder
//
// Members that hear each other tell so every third of a Duration, and a majority
// of them with a candidate has a holder within three Durations of whatever went
// wrong before: one until old grants and abstentions are over, and the rest for
// lost messages. A released lease takes two round trips. A guest that is no
// candidate speaks a fifteenth as often.
package lease
