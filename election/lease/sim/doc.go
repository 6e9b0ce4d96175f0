// Package sim has no code but tests: it runs the machine of package lease, and its
// messages as they are on the wire, through random schedules of faults in virtual
// time. What surrounds the machine in Herald is not run here but modelled:
//
//   - process_test.go stands for package election, which calls the machine and sends
//     its messages: here at once, there after a loss only when the speaker knows of it;
//   - speaker_test.go for package speaker, which opens the fence for a lease that is
//     held, and closes it before it resigns;
//   - node_test.go for the fence in the kernel, which closes by itself, late by a jiffy.
//
// The models keep the order of steps that lease/doc.go demands of a caller, and may
// be paused or killed between any two. Whether the real ones keep it is tested in
// their packages, and together in speaker/sim, where an election is never late.
//
// A schedule is a world with a network, nodes, their clocks, kernels and
// processes. First comes a chaos of faults, then a calm. All of it follows from
// one number, the seed; a schedule that fails is told with its seed, and run
// again by
//
//	go test ./election/lease/sim -run TestSchedules -seed 4711
//
// The operator among the faults is careless: any list of members, at any time and in
// any order, removed members that run on, shorter and longer leases. Not simulated is
// what leases do not promise to survive: a pause that stops a virtual machine's clock
// too, and a disk that is lost.
package sim
