//go:build e2e

package session

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/testenv/e2e/site"
)

// TestOutOfDescriptors denies the speaker further descriptors, and meanwhile kills its
// apiserver and restarts a router. The VIP is withdrawn nevertheless, and once there
// are descriptors again everything is as before. Without a descriptor for its check it
// cannot know whether the apiserver lives, and withdraws.
func TestOutOfDescriptors(t *testing.T) {
	for name, most := range map[string]func(*testing.T, int) uint64{
		"those it has": lowestFreeDescriptor,
		"none":         func(*testing.T, int) uint64 { return 0 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newAnnouncingSite(t, nil)
			routes := site.WatchRoutes(t, s.Node("r2"))
			pid := s.Node("s").Daemon("herald").Pid()
			cause := time.Now()
			lift := limit(t, pid, unix.RLIMIT_NOFILE, most(t, pid))
			if name == "none" {
				withdrawn(t, s)
			} else {
				cause = time.Now()
			}
			s.ApiserverDies()
			site.Must(t, s.Node("r1").Kill())
			site.Boot(t, s.Lab, "r1")
			withdrawn(t, s)
			t.Logf("r2: route gone after %v", routes.GoneAfter(cause))
			lift()
			status, err := s.Status(t)
			site.Must(t, err)
			why := status.VIPs[0].LastWithdrawal.Reason
			t.Logf("withdrawn because %q", why)
			if name == "none" && !strings.Contains(why, "check's own: too many open files") {
				t.Errorf("withdrawn because %q, want a fault of the check itself", why)
			}
			s.ApiserverStarts(t)
			announced(t, s)
		})
	}
}

// limit bounds a resource of a running process, until it is lifted again.
func limit(t *testing.T, pid, resource int, most uint64) (lift func()) {
	t.Helper()
	var old unix.Rlimit
	site.Must(t, unix.Prlimit(pid, resource, nil, &old))
	site.Must(t, unix.Prlimit(pid, resource, &unix.Rlimit{Cur: most, Max: old.Max}, nil))
	return func() {
		t.Helper()
		site.Must(t, unix.Prlimit(pid, resource, &old, nil))
	}
}

// lowestFreeDescriptor returns the number of the process's next open file.
func lowestFreeDescriptor(t *testing.T, pid int) uint64 {
	t.Helper()
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	site.Must(t, err)
	used := make(map[string]bool)
	for _, fd := range open {
		used[fd.Name()] = true
	}
	lowest := 0
	for used[strconv.Itoa(lowest)] {
		lowest++
	}
	return uint64(lowest)
}

// TestOutOfMemory takes the speaker's memory away until its runtime gives up: the
// routes go with the process, and the address expires.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	s := newAnnouncingSite(t, nil)
	herald := s.Node("s").Daemon("herald")
	limit(t, herald.Pid(), unix.RLIMIT_AS, 1)

	// Its present memory may last for long, so give it a lot to read.
	big := site.BothPeers + strings.Repeat("#  \n", 200_000)
	site.Eventually(t, site.Soon, func() error {
		if !herald.Running() {
			return nil
		}
		big += "#\n"
		inPlace(t, s.Config, big)
		return fmt.Errorf("herald runs without memory")
	})
	died := time.Now()
	onlyOn(t, s)
	s.HasAddress(t, site.VIP4, false)
	t.Logf("address expired %v after the process", time.Since(died).Round(site.Poll))
	log := site.ReadFile(t, s.Node("s").Log())
	if !strings.Contains(log, "out of memory") && !strings.Contains(log, "cannot allocate memory") {
		t.Errorf("herald did not end for lack of memory:\n%s", log)
	}

	inPlace(t, s.Config, site.BothPeers)
	site.Boot(t, s.Lab, "s")
	announced(t, s)
}

// TestKilledAndRestarted kills the speaker and starts it again, with its control
// socket and its address still present: it takes both over, and the address never
// goes.
func TestKilledAndRestarted(t *testing.T) {
	t.Parallel()
	s := newAnnouncingSite(t, nil)
	address := followAddress(t, s.Node("s"), site.VIP4)
	for range 3 {
		site.Kill(t, s.Node("s"))
		site.MustRun(t, s.Node("s"), "test", "-S", "/run/herald/herald.sock")
		site.Boot(t, s.Lab, "s")
		announced(t, s)
	}
	if n := address.removals(); n > 0 {
		t.Errorf("the address was removed %d times", n)
	}
}

// TestDiskFull runs the speaker on full file systems: it refuses a configuration that
// was cut off by that, everything else continues.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	s := site.NewSession(t, nil)
	n := s.Node("s")
	site.Shell(t, n, `
		cp /etc/herald/herald.yaml /tmp/herald.yaml
		mkdir -p /run/herald
		for d in /etc/herald /run/herald /var; do mount -t tmpfs -o size=64k tmpfs $d; done
		cp /tmp/herald.yaml /etc/herald/herald.yaml`)
	site.Boot(t, s.Lab, "r1", "r2", "s")
	announced(t, s)
	calm := watchBystander(t, s)

	// The first fill leaves only the configuration's page, which cuts off a longer one.
	const fill = `for d in /etc/herald /run/herald /var; do ! cat /dev/zero >>$d/fill 2>/dev/null || exit 1; done`
	site.Shell(t, n, fill)
	site.Shell(t, n, `
		{ for i in $(seq 1000); do echo "# line $i of a long comment"; done; cat /tmp/herald.yaml; } >/tmp/long.yaml
		! cp /tmp/long.yaml /etc/herald/herald.yaml`)
	generation(t, s, 1, "/etc/herald/herald.yaml:")
	calm.untouched(t)

	s.ApiserverDies()
	withdrawn(t, s)
	s.ApiserverStarts(t)
	announced(t, s)
	site.Kill(t, n)
	site.Shell(t, n, `rm /etc/herald/fill && cp /tmp/herald.yaml /etc/herald/herald.yaml; `+fill)
	site.Boot(t, s.Lab, "s")
	announced(t, s)

	site.Shell(t, n, `rm /etc/herald/fill && cp /tmp/long.yaml /etc/herald/herald.yaml`)
	generation(t, s, 2, "")
}

// TestReadOnlyRoot makes the root file system read-only under the speaker, as on a
// disk error: it continues to withdraw and announce, and can be restarted.
func TestReadOnlyRoot(t *testing.T) {
	t.Parallel()
	s := newAnnouncingSite(t, nil)
	site.Shell(t, s.Node("s"), `mount -o remount,ro / && ! touch /var/tmp/x 2>/dev/null && mount -o remount,ro,bind /etc/herald`)
	s.ApiserverDies()
	withdrawn(t, s)
	s.ApiserverStarts(t)
	announced(t, s)
	site.Kill(t, s.Node("s"))
	site.Boot(t, s.Lab, "s")
	announced(t, s)

	// Without /run it cannot be started, but a running speaker continues.
	site.Shell(t, s.Node("s"), `mount -o remount,ro /run`)
	s.ApiserverDies()
	withdrawn(t, s)
	s.ApiserverStarts(t)
	announced(t, s)
}

// TestConntrackFull makes the node's connection tracking drop new connections, as when
// its table is full. Clients cannot connect to the VIP, and the check cannot either,
// so it is withdrawn; the sessions, which are in the table, stay.
func TestConntrackFull(t *testing.T) {
	t.Parallel()
	s := newAnnouncingSite(t, nil)
	site.Shell(t, s.Node("s"), `
		nft add table inet full
		nft add chain inet full in '{ type filter hook prerouting priority 0; }'
		nft add rule inet full in ct state new tcp flags '&' syn == syn drop`)
	withdrawn(t, s)
	for _, p := range plainPeers {
		s.Established(t, p.router, p.neighbor, p.peer)
		onceUp(t, s, p.router, p.neighbor)
	}
	status, err := s.Status(t)
	site.Must(t, err)
	if why := status.VIPs[0].Reason; !strings.Contains(why, "within") {
		t.Errorf("status has the reason %q, want a connection timeout", why)
	}
	site.Shell(t, s.Node("s"), `nft delete table inet full`)
	announced(t, s)
}
