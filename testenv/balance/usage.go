package balance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// CPUOf reads the CPU clock of another process, whose number is made of its PID
// (clock_getcpuclockid(3)).
func CPUOf(pid int) (time.Duration, error) {
	const schedClock = 2
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|schedClock), &ts); err != nil {
		return 0, fmt.Errorf("CPU clock of %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

// Group are the PIDs of a process group, in order.
func Group(pgid int) ([]int, error) {
	return processes(func(_ string, fields []string) bool { return len(fields) > 2 && fields[2] == strconv.Itoa(pgid) })
}

// SoftIRQ are the PIDs of the kernel's threads that do what interrupts left to do. A container may
// show none of them.
func SoftIRQ() ([]int, error) {
	list, err := processes(func(name string, _ []string) bool { return strings.HasPrefix(name, "ksoftirqd/") })
	if errors.Is(err, errNone) {
		return nil, nil
	}
	return list, err
}

var errNone = errors.New("there is no such process")

// processes are those that match, by their name and the fields of /proc/PID/stat after that.
func processes(match func(name string, fields []string) bool) (list []int, err error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		begin, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
		if begin < 0 || end < begin || !match(string(text[begin+1:end]), strings.Fields(string(text[end+1:]))) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return nil, err
		}
		list = append(list, pid)
	}
	slices.Sort(list)
	if len(list) == 0 {
		return nil, errNone
	}
	return list, nil
}

// MachineBusy is how long all CPUs together have been busy since the machine booted.
func MachineBusy() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	return busy(string(text))
}

// busy sums up the first line of /proc/stat, in hundredths of a second: user, nice,
// system, idle, iowait, irq, softirq.
func busy(stat string) (sum time.Duration, err error) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) < 8 || fields[0] != "cpu" {
		return 0, fmt.Errorf("/proc/stat begins with %q", line)
	}
	for i, field := range fields[1:8] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat: %w", err)
		}
		if i != 3 && i != 4 {
			sum += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	return sum, nil
}

// Eventually tries until it succeeds, every few milliseconds, or the context ends.
func Eventually(ctx context.Context, try func() error) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}
