// Package sim has no code but tests: it runs packages speaker, election and netutil/fence together, on several
// nodes, through random schedules of faults in virtual time, and checks that never two nodes answer for a VIP.
//
// Real are the speaker, the adapter speaker/flat.Leases, the fence without its loop (Keep: a process checks its tables
// when they have been altered, and every second), and the election with its lease machine, memberlist, encryption and
// file. They are put together as package daemon does it.
//
// Fake are, of each node, the kernel (nftables with sets that expire, addresses with a lifetime), what
// netutil/address and arp do above it (kernel_test.go), the checks (verdicts come from the schedule) and,
// from testenv/fabric, the network.
//
// A process may be frozen or killed wherever it touches kernel, network or lease, also between the fence's reading the
// clock and the kernel's work. Its goroutines do run until they come there, which is as near to SIGSTOP as synctest
// allows: the election of a frozen process goes on, without a network, and so loses its lease in time. An election that
// wakes late is election/lease/sim's. Nor does time go on in a bubble while a goroutine waits for a mutex. So a process
// does one thing at a time (process.do), and its loops go step by step: that Check falls between two calls of the
// fence in one decision does not happen here.
//
// All nodes have one clock: that rates differ is election/lease/sim's. So are a quorum of none, and larger clusters.
//
// After a flush of nftables a fake kernel answers for what is bound, as the real one does. docs/faults.md promises no
// more than that a speaker puts the tables back: the checker allows a node to answer until it is dead and its
// address has expired, or its process has run undisturbed for pardon.
//
// The operator changes lists, leases, priorities and the VIPs' addresses, or installs, moves, removes and switches off
// nodes that come and go by themselves. What binds the operator:
//   - Of a list, those without a record are a minority, and no member loses its disk. A member moves when all have
//     agreed to the list as it is, and four leases have passed.
//   - Where nodes come and go, a majority of the voters keep their disks, and none is moved, switched off or installed
//     anew within three leases of a removal. The first node's bootstrap goes when the first record is there.
//
// What is left out: to give two VIPs each other's address, to change between members and join, and the minute for which
// a voter that is silent keeps its vote, as a schedule is over by then.
//
// TestFindsBreaks shows what the checker finds. Rules of the electorate are not among it: with a voter that forgets
// its disk, or is the same one after it was lost, 500 schedules show no two holders. Those are for election/lease/sim
// and its model to find.
//
// A seed only begins a schedule: what happens depends on how long things take, the order of what happens at one instant
// and what memberlist draws. So a failure prints its trace. To see all of one like it, or to try it often:
//
//	go test ./speaker/sim -run TestSchedules -seed 4711 -count 20
package sim
