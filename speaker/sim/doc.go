// Package sim has no code but tests: it runs packages speaker, election and netutil/fence together, on several
// nodes, through random schedules of faults in virtual time, and checks that never two nodes answer for a VIP.
//
// Real are the speaker, the adapter speaker/flat.Leases, the fence with its loop that puts tables back, and the
// election with its lease machine, memberlist, encryption and file. They are put together as package daemon does it.
//
// Fake are, of each node, the kernel (nftables with sets that expire, addresses with a lifetime), what
// netutil/address and arp do above it (kernel_test.go), the checks (verdicts come from the schedule) and,
// from testenv/fabric, the network.
//
// A process may be frozen or killed wherever it touches kernel, network or lease, also between the fence's reading the
// clock and the kernel's work. Its goroutines do run until they come there, which is as near to SIGSTOP as synctest
// allows. Nor does time go on in a bubble while a goroutine waits for a mutex. So a process does one thing
// at a time (process.do), and the loops of speaker and fence go step by step: that Check falls between two calls of the
// fence in one decision does not happen here.
//
// All nodes have one clock: that rates differ is election/lease/sim's. So are a quorum of none, and larger clusters.
//
// After a flush of nftables a fake kernel answers for what is bound, as the real one does. docs/faults.md promises no
// more than that a speaker puts the tables back: the checker allows a node to answer until it is dead and its
// address has expired, or its process has run undisturbed for pardon.
//
// The operator changes lists, leases, priorities and the VIPs' addresses, or installs, moves, removes and switches off
// nodes that come and go by themselves, on any node at any time and in any order. Two rules bind the operator: nodes
// without a record are a minority of their list, and a majority of the voters keep their disks. What is left out: to
// give two VIPs each other's address, and to change between members and join.
//
// A schedule follows from its seed, but for the order of what happens at one instant, and what memberlist draws. So a
// failure prints the end of its trace. To see all of one like it, or to try it often:
//
//	go test ./speaker/sim -run TestSchedules -seed 4711 -count 20
package sim
