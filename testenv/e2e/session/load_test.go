//go:build e2e

package session

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/bgp/bfd"
	"github.com/herald-vip/herald/testenv/e2e/site"
)

// TestPeerBFDUnderLoad holds a session of 3 × 10 ms, in real time at both ends, while
// every core is overloaded: it must not go down. It takes BFD_LOAD_TIME, ten seconds
// by default.
func TestPeerBFDUnderLoad(t *testing.T) {
	s := site.NewSession(t, site.Files{
		"r1.conf": site.RouterConf(64500, `
 neighbor 10.0.1.1 remote-as 64512
 neighbor 10.0.1.1 timers connect 1
 neighbor 10.0.1.1 bfd profile fast
exit
bfd
 profile fast
  detect-multiplier 3
  transmit-interval 10
  receive-interval 10
 exit
exit`),
		"herald/herald.yaml": "realtime: true\n" + site.SpeakerConf([]string{site.VIP4}, `
peers:
- {address: 10.0.1.254, asn: 64500, bfd: {interval: 10ms, multiplier: 3}}`),
	})
	site.Boot(t, s.Lab, "r1", "s")
	bfdd := s.Node("r1").Daemon("bfdd").Pid()
	if out, err := exec.CommandContext(t.Context(), "chrt", "-a", "-f", "-p", "1", strconv.Itoa(bfdd)).CombinedOutput(); err != nil {
		t.Fatalf("put bfdd in real time: %v: %s", err, out)
	}
	s.Established(t, "r1", "10.0.1.1", "10.0.1.254")
	_, before := watchedUp(t, s, "r1", "10.0.1.254")
	if before.BFD.DetectionTime.Seconds() != 0.03 {
		t.Fatalf("the detection time is %v s, want 0.03", before.BFD.DetectionTime.Seconds())
	}

	began, w := time.Now(), site.StartWitness(t)
	measured := site.UnderLoad(t, s.Node("far"), "BFD_LOAD_TIME")
	status, err := s.Status(t)
	site.Must(t, err)
	if status.Realtime != "on" {
		t.Errorf("real time: %s", status.Realtime)
	}
	if first := realtimeThreads(t, s.Node("s").Daemon("herald").Pid(), 2); first != 1 {
		t.Errorf("%d threads have this priority, want 1 for BFD", first)
	}
	after := status.Peers[0]
	if after.BFD == nil || after.BFD.State != bfd.Up || after.BFD.Downs != before.BFD.Downs || after.Drops != before.Drops {
		site.FailTiming(t, w.Stolen(began), "after %v under load: session %s, %d times lost, BFD %+v", measured, after.State, after.Drops-before.Drops, after.BFD)
	}
	t.Logf("%d packets in and %d out in %v", after.BFD.In-before.BFD.In, after.BFD.Out-before.BFD.Out, measured)
}

// realtimeThreads counts the process's threads with this real-time priority.
func realtimeThreads(t *testing.T, pid int, priority uint32) (n int) {
	t.Helper()
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	site.Must(t, err)
	for _, thread := range threads {
		tid, err := strconv.Atoi(thread.Name())
		site.Must(t, err)
		if attr, err := unix.SchedGetAttr(tid, 0); err == nil && attr.Policy == unix.SCHED_RR && attr.Priority == priority {
			n++
		}
	}
	return n
}
