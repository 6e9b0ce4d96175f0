// Package sim contains tests only. They run packages speaker, election and netutil/fence together on several nodes,
// through random schedules of faults in virtual time, and check that two nodes never answer for one VIP.
//
// The real parts are the speaker, the adapter speaker/flat.Leases, the fence and the election with its lease machine,
// memberlist, encryption and file. The fence runs without its loop Keep: a process checks its tables after each change
// and every second. The tests connect the parts as package daemon does.
//
// The fake parts of each node are:
//   - the kernel: nftables with expiring sets, and addresses with a lifetime;
//   - the work of netutil/address and arp above it (kernel_test.go);
//   - the checks, with verdicts from the schedule;
//   - the network, from testenv/fabric.
//
// A process can be frozen or killed at each call to kernel, network or lease, and also between the
// fence's reading of the clock and the kernel's work. Its goroutines run on until their next such call,
// which is as near to SIGSTOP as synctest allows. So the election of a frozen process goes on without a
// network and loses its lease in time. Package election/lease/sim covers an election that wakes late.
//
// Time does not advance in a bubble while a goroutine waits for a mutex. So a process does one thing at
// a time (process.do), and its loops go step by step. These tests therefore never run Check between two
// calls of the fence in one decision.
//
// All nodes share one clock. Package election/lease/sim covers clocks of different rates, clusters
// without a quorum, and larger clusters.
//
// After a flush of nftables the fake kernel answers for bound addresses, as the real one does. docs/faults.md promises
// only that the speaker restores the tables. So the checker allows such a node to answer until it is dead and its
// address has expired, or until its process has run undisturbed for pardon.
//
// The operator changes member lists, leases, priorities and the VIPs' addresses. In open clusters, where nodes join and
// leave by themselves, the operator installs, moves, removes and powers off nodes. The operator keeps these rules:
//   - With a member list, members without a committed electorate on disk are a minority, and no member
//     loses its disk. A member moves only when all nodes have the current list and four leases have
//     passed since it changed.
//   - In an open cluster, a majority of the voters keep their disks. No node is moved, powered off or
//     reinstalled within three leases of a removal. The first node's bootstrap setting is removed once
//     there is a committed electorate.
//
// The schedules do not swap the addresses of two VIPs and do not change between member lists and open
// clusters. They end within a minute, so that no silent voter loses its vote.
//
// TestFindsBreaks shows which faults the checker finds. Faults in the electorate's rules are not among
// them. With a voter that forgets its disk, or that returns as the same member without it, 500
// schedules show no two holders. Package election/lease/sim and its model find those.
//
// A seed only determines the schedule. The outcome also depends on durations, on the order of events at one instant and
// on memberlist's random numbers. So a failure prints its trace. Repeat one seed and print its trace:
//
//	go test ./speaker/sim -run TestSchedules -seed 4711 -count 20
package sim
