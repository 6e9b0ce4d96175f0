//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestIdleCost measures what a speaker costs that has nothing to do: one VIP,
// two checks at 200 ms, two peers.
func TestIdleCost(t *testing.T) {
	const (
		mostResident = 45 << 20 // bytes
		measured     = 20 * time.Second
	)
	s := newSite(t, files{"herald/herald.yaml": `apiVersion: herald.dev/v1alpha1
kind: Speaker
nodeName: s
vips:
- {name: control-plane, addresses: [10.99.0.10], announce: bgp, checks: [apiserver, registry]}
checks:
- {name: apiserver, interval: 200ms, http: {url: "http://127.0.0.1:6443/readyz"}}
- {name: registry, interval: 200ms, http: {url: "http://127.0.0.1:6443/livez"}}
bgp:
  asn: 64512
  routerID: 10.255.0.2
  peers:
  - {address: 10.0.1.254, asn: 64500}
  - {address: 10.0.2.254, asn: 64500}
`})
	boot(t, s.Lab, "r1", "r2", "s")
	for _, j := range []string{"1", "2"} {
		s.established(t, "r"+j, "10.0."+j+".1", "10.0."+j+".254")
		s.path(t, "r"+j, vip4)
	}

	pid := s.Node("s").Daemon("herald").Pid()
	began, before := time.Now(), processorTime(t, pid)
	<-time.After(measured)
	used := processorTime(t, pid) - before
	resident, peak := memory(t, pid, "VmRSS"), memory(t, pid, "VmHWM")
	t.Logf("resident memory %.1f MiB (at most %.1f), %.2f %% of a core",
		float64(resident)/(1<<20), float64(peak)/(1<<20), 100*used.Seconds()/time.Since(began).Seconds())
	if peak > mostResident {
		t.Errorf("resident memory was up to %d bytes, want at most %d", peak, mostResident)
	}
}

// TestIdleCostFlat measures what speakers cost on a flat layer 2 where nothing
// happens: one VIP with two addresses, a check at its default interval, leases of
// 600 ms, three masters.
func TestIdleCostFlat(t *testing.T) {
	const (
		mostResident = 45 << 20 // bytes
		measured     = 20 * time.Second
	)
	f := &flat{Lab: startLab(t, "flat.clab.yml", nil)} // an observer's questions would cost, too
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	must(t, f.Boot(ctx))
	var holder string
	for _, m := range flatMasters() {
		f.ready(t, m)
	}
	eventually(t, soon, func() error {
		e, err := f.election(t, "m1")
		if err == nil && e.Leases[0].Holder == "" {
			err = errors.New(e.Leases[0].Reason)
		}
		if err == nil {
			holder = e.Leases[0].Holder
		}
		return err
	})

	pid := func(m string) int { return f.Node(m + "-speaker").Daemon("herald").Pid() }
	began, before := time.Now(), make(map[string]time.Duration)
	for _, m := range flatMasters() {
		before[m] = processorTime(t, pid(m))
	}
	<-time.After(measured)
	for _, m := range flatMasters() {
		used := processorTime(t, pid(m)) - before[m]
		role := "does not hold the VIP"
		if m == holder {
			role = "holds the VIP"
		}
		peak := memory(t, pid(m), "VmHWM")
		t.Logf("%s, which %s: resident memory %.1f MiB, %.2f %% of a core", m, role,
			float64(memory(t, pid(m), "VmRSS"))/(1<<20), 100*used.Seconds()/time.Since(began).Seconds())
		if peak > mostResident {
			t.Errorf("resident memory of %s was up to %d bytes, want at most %d", m, peak, mostResident)
		}
	}
}

// processorTime is what the process has used, in its own code and the kernel.
func processorTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must(t, err)
	// Field 14 and 15, in ticks of 10 ms; the name in field 2 may have spaces.
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	var ticks int
	for _, f := range fields[11:13] {
		n, err := strconv.Atoi(f)
		must(t, err)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// memory is a figure of the process's status, in bytes.
func memory(t *testing.T, pid int, name string) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			kib, err := strconv.Atoi(strings.Fields(value)[0])
			must(t, err)
			return kib << 10
		}
	}
	t.Fatalf("process %d has no %s", pid, name)
	return 0
}
