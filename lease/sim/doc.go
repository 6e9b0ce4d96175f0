// Package sim has no code but tests: it runs package lease, with the shell that
// Herald puts around it, through random schedules of faults in virtual time.
//
// A schedule is a world with a network, nodes, their clocks, kernels and
// processes. First comes a chaos of faults, then a calm. All of it follows from
// one number, the seed; a schedule that fails is told with its seed, and run
// again by
//
//	go test ./lease/sim -run TestSchedules -seed 4711
//
// Not simulated is what leases do not promise to survive: a pause that stops a
// virtual machine's clock too, a member that is removed and left running while the
// next ones change, and a process that starts with a shorter lease than its
// predecessor voted for, before that has ended.
package sim
