package observe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/bench/record"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/step"
)

// CPUOf returns the sum of the processes' CPU clocks. A clock's number derives from
// its PID (clock_getcpuclockid(3)); 0 is this process.
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

// Resident returns the resident memory of a process, in bytes.
func Resident(pid int) float64 {
	p := step.Get(procfs.NewProc(pid))
	return float64(step.Get(p.NewStatus()).VmRSS)
}

// Group returns the PIDs of a process group, in order.
func Group(pgid int) ([]int, error) {
	return processes(func(p procfs.ProcStat) bool { return p.PGRP == pgid })
}

// SoftIRQ returns the PIDs of the kernel's softirq threads. In a container the list may be empty.
func SoftIRQ() ([]int, error) {
	return processes(func(p procfs.ProcStat) bool { return strings.HasPrefix(p.Comm, "ksoftirqd/") })
}

func processes(match func(procfs.ProcStat) bool) (list []int, err error) {
	all, err := procfs.AllProcs()
	for _, p := range all {
		if stat, e := p.Stat(); e == nil && match(stat) { // otherwise it has ended
			list = append(list, p.PID)
		}
	}
	slices.Sort(list)
	return list, err
}

// Busy returns how long all CPUs together have been busy since the machine booted.
func Busy() time.Duration {
	cpu := step.Get(cpus())
	return seconds(cpu.User + cpu.Nice + cpu.System + cpu.IRQ + cpu.SoftIRQ)
}

// stolen returns the CPU time that the hypervisor gave to others; 0 if unknown.
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

// NeighbourOverflows returns how often the kernel's neighbour tables have been full.
// All namespaces of a machine share them (net.ipv4.neigh.default.gc_thresh3). A host
// that cannot make an entry does not even answer ARP. So on a machine full of labs a
// full table may look like a silent holder.
func NeighbourOverflows() (n uint64) {
	fs := step.Get(procfs.NewDefaultFS())
	for _, t := range step.Get(fs.NetStat()) {
		if t.Filename == "arp_cache" || t.Filename == "ndisc_cache" {
			for _, overflows := range t.Stats["table_fulls"] { // of each CPU
				n += overflows
			}
		}
	}
	return n
}

// ErrDisturbed marks a trial that another event disturbed. The lab is still usable.
var ErrDisturbed = errors.New("disturbed")

// Undisturbed calls do. It fails with ErrDisturbed if a neighbour table overflowed meanwhile.
func Undisturbed(do func()) {
	before := NeighbourOverflows()
	do()
	if NeighbourOverflows() != before {
		step.Do(fmt.Errorf("%w: the kernel's table of neighbours was full, see net.ipv4.neigh.default.gc_thresh3", ErrDisturbed))
	}
}

// Trials calls try until it was undisturbed that many times, and then the function that
// it returned, to record the values. It records a disturbed trial as such.
func Trials(rec *record.Recorder, name string, trials int, try func() (note func())) {
	for done := 0; done < trials; {
		var note func()
		err := step.Run(func() { Undisturbed(func() { note = try() }) })
		if errors.Is(err, ErrDisturbed) {
			rec.Discard(name, err)
			continue
		}
		step.Do(err)
		done++
		note()
	}
}

// Status returns Herald's status, from the binary at this path in the node.
func Status(ctx context.Context, speaker *lab.Node, binary string) (s admin.Status, err error) {
	out, err := speaker.Run(ctx, binary, "status", "-o", "json")
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal([]byte(out), &s)
}

// AuditLog returns the complete lines of an API server's audit log.
func AuditLog(path string) []byte {
	text := step.Get(os.ReadFile(path))
	return text[:bytes.LastIndexByte(text, '\n')+1]
}

const (
	tick = 2 * time.Millisecond
	// tooLate is the tolerated delay of a ticker, and tooMuchSteal the tolerated steal
	// time of the CPUs, during a measurement.
	tooLate      = 20 * time.Millisecond
	tooMuchSteal = 35 * time.Millisecond // its resolution is 10 ms
)

// Witness calls do, and detects when this machine is too busy for times of
// milliseconds: a ticker of this process is late, or the hypervisor takes the CPU. It
// returns the ticker's largest delay, and in starved an error if the machine was too
// busy.
func Witness(ctx context.Context, do func()) (late time.Duration, starved error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	before := stolen()
	var ticking sync.WaitGroup
	ticking.Go(func() {
		for due := time.Now().Add(tick); step.Sleep(ctx, tick) == nil; due = time.Now().Add(tick) {
			late = max(late, time.Since(due))
		}
	})
	do()
	stop()
	ticking.Wait()
	if took := stolen() - before; late > tooLate || took > tooMuchSteal {
		starved = fmt.Errorf("the machine was busy: a ticker came %d ms late, %d ms of CPU were stolen", late.Milliseconds(), took.Milliseconds())
	}
	return late, starved
}
