package observe

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// CPUOf adds up the CPU clocks of processes. The number of a clock is made of its PID
// (clock_getcpuclockid(3)); 0 is this process.
func CPUOf(pids ...int) (sum time.Duration, err error) {
	const schedClock = 2
	for _, pid := range pids {
		var ts unix.Timespec
		if err := unix.ClockGettime(int32(^pid<<3|schedClock), &ts); err != nil {
			return 0, fmt.Errorf("CPU clock of %d: %w", pid, err)
		}
		sum += time.Duration(ts.Nano())
	}
	return sum, nil
}

// Resident is the resident memory of a process, in bytes.
func Resident(pid int) (float64, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	status, err := p.NewStatus()
	return float64(status.VmRSS), err
}

// Group are the PIDs of a process group, in order.
func Group(pgid int) ([]int, error) {
	return processes(func(p procfs.ProcStat) bool { return p.PGRP == pgid })
}

// SoftIRQ are the PIDs of the kernel's threads that do what interrupts left to do. A container may
// show none of them.
func SoftIRQ() ([]int, error) {
	return processes(func(p procfs.ProcStat) bool { return strings.HasPrefix(p.Comm, "ksoftirqd/") })
}

func processes(match func(procfs.ProcStat) bool) (list []int, err error) {
	all, err := procfs.AllProcs()
	for _, p := range all {
		if stat, e := p.Stat(); e == nil && match(stat) { // else it has ended
			list = append(list, p.PID)
		}
	}
	slices.Sort(list)
	return list, err
}

// Busy is how long all CPUs together have been busy since the machine booted.
func Busy() (time.Duration, error) {
	cpu, err := cpus()
	return seconds(cpu.User + cpu.Nice + cpu.System + cpu.IRQ + cpu.SoftIRQ), err
}

// stolen is the CPU time that the hypervisor has given to others; 0 if it does not tell.
func stolen() time.Duration {
	cpu, _ := cpus()
	return seconds(cpu.Steal)
}

func cpus() (procfs.CPUStat, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return procfs.CPUStat{}, err
	}
	stat, err := fs.Stat()
	return stat.CPUTotal, err
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// NeighbourOverflows is how often the kernel's tables of neighbours have been
// full. They are shared by all namespaces of a machine (net.ipv4.neigh.default
// .gc_thresh3), and a host that cannot make an entry does not even answer ARP: on a
// machine full of labs, what looks like a silent holder may be that.
func NeighbourOverflows() (n uint64, err error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	tables, err := fs.NetStat()
	for _, t := range tables {
		if t.Filename == "arp_cache" || t.Filename == "ndisc_cache" {
			for _, overflows := range t.Stats["table_fulls"] { // of each CPU
				n += overflows
			}
		}
	}
	return n, err
}

// ErrDisturbed is a trial that something else got in the way of. What is left of the lab is good.
var ErrDisturbed = errors.New("disturbed")

// Undisturbed does something, and says so if the kernel could not remember a neighbour meanwhile.
func Undisturbed(do func() error) error {
	before, err := NeighbourOverflows()
	if err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	now, err := NeighbourOverflows()
	if err == nil && now != before {
		err = fmt.Errorf("%w: the kernel's table of neighbours was full, see net.ipv4.neigh.default.gc_thresh3", ErrDisturbed)
	}
	return err
}
