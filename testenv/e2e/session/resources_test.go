//go:build e2e

package session

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/stub"
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
			pid := s.Node("s").Daemon("herald").Pid()
			lift := limit(t, pid, unix.RLIMIT_NOFILE, most(t, pid))
			if name == "none" {
				withdrawn(t, s)
			}
			s.ApiserverDies()
			site.Must(t, s.Node("r1").Kill())
			site.Boot(t, s.Lab, "r1")
			withdrawn(t, s)
			lift()
			status := site.Get[admin.Status](t)(s.Status(t))
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
	open := site.Get[[]os.DirEntry](t)(os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)))
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
	withdrawn(t, s)
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
	status := site.Get[admin.Status](t)(s.Status(t))
	if why := status.VIPs[0].Reason; !strings.Contains(why, "within") {
		t.Errorf("status has the reason %q, want a connection timeout", why)
	}
	site.Shell(t, s.Node("s"), `nft delete table inet full`)
	announced(t, s)
}

// TestAddressRemoved repeatedly removes the VIP's address: it is restored, and
// counted; the routes stay.
func TestAddressRemoved(t *testing.T) {
	t.Parallel()
	s := newAnnouncingSite(t, nil)
	calm := watchBystander(t, s)
	for removals := 1; removals <= 4; removals++ {
		site.Shell(t, s.Node("s"), "ip addr del 10.99.0.10/32 dev lo")
		restored(t, s, removals)
	}
	calm.untouched(t)
}

// restored waits until the address has been restored this many times, and is present.
func restored(t *testing.T, s *site.Session, times int) {
	t.Helper()
	s.Shows(t, func(status admin.Status) error {
		return site.ErrorIf(status.VIPs[0].Restored < times, "put back %d times, want %d", status.VIPs[0].Restored, times)
	})
	s.HasAddress(t, site.VIP4, true)
}

// TestLoopbackFlushed removes all addresses from lo, including 127.0.0.1: the
// apiserver cannot be reached until they are back.
func TestLoopbackFlushed(t *testing.T) {
	t.Parallel()
	s := newAnnouncingSite(t, nil)
	site.Shell(t, s.Node("s"), "ip addr flush dev lo")
	withdrawn(t, s)
	because(t, s, "GET http://127.0.0.1:6443/readyz: ")
	site.Shell(t, s.Node("s"), "ip addr add 127.0.0.1/8 dev lo scope host")
	announced(t, s)
}

// TestFloodOfAddressChanges floods the node with 20,000 address changes while the
// speaker is frozen, so that it loses most messages, including the one about its own
// address: it detects that nevertheless.
func TestFloodOfAddressChanges(t *testing.T) {
	t.Parallel()
	s := newAnnouncingSite(t, nil)
	herald := s.Node("s").Daemon("herald")
	const flood = `
		ip link show flood >/dev/null 2>&1 || ip link add flood type veth
		for i in $(seq 10000); do echo "addr add 10.98.0.1/32 dev flood"; echo "addr del 10.98.0.1/32 dev flood"; done | ip -batch -`
	site.Must(t, herald.Freeze())
	site.Shell(t, s.Node("s"), flood+"\nip addr del 10.99.0.10/32 dev lo")
	site.Must(t, herald.Thaw())
	wantUpdates(t, s.Node("s"), "changes of links and addresses were lost")
	announced(t, s)

	// When it runs it keeps up, and also with changes amid a flood.
	status := site.Get[admin.Status](t)(s.Status(t))
	site.Shell(t, s.Node("s"), flood+"\nip addr del 10.99.0.10/32 dev lo\n"+flood)
	restored(t, s, status.VIPs[0].Restored+1)
	announced(t, s)
}

// TestSpeakerStandsStill freezes the speaker for longer than its session and its
// address last, and kills the apiserver meanwhile. When it continues, it announces
// nothing until the apiserver is back.
func TestSpeakerStandsStill(t *testing.T) {
	t.Parallel()
	s := newAnnouncingSite(t, nil)
	herald := s.Node("s").Daemon("herald")
	site.Must(t, herald.Freeze())
	s.ApiserverDies()
	withdrawn(t, s)

	routes := []*site.RouteWatcher{site.WatchRoutes(t, s.Node("r1")), site.WatchRoutes(t, s.Node("r2"))}
	address := followAddress(t, s.Node("s"), site.VIP4)
	site.Must(t, herald.Thaw())
	because(t, s, "GET http://127.0.0.1:6443/readyz: ")
	for _, p := range plainPeers {
		s.Established(t, p.router, p.neighbor, p.peer)
	}
	withdrawn(t, s)
	for _, r := range routes {
		r.Untouched(t) // that would be a route to a dead apiserver
	}
	if events := address.since(); len(events) > 0 {
		t.Errorf("the address of a dead apiserver was put back: %v", events)
	}
	s.ApiserverStarts(t)
	announced(t, s)
}

// because waits until status reports the check unhealthy with a reason that begins
// like this, and the VIP withdrawn.
func because(t *testing.T, s *site.Session, reason string) {
	t.Helper()
	s.Shows(t, func(status admin.Status) error {
		vip, check := status.VIPs[0], status.Checks[0]
		return site.ErrorIf(vip.Stage != "withdrawn" || check.State != health.Unhealthy || !strings.HasPrefix(check.Reason, reason),
			"the VIP is %s, the check %s because %q, want withdrawn, unhealthy and %q", vip.Stage, check.State, check.Reason, reason)
	})
}

// TestSlowAPIServer makes the apiserver answer late, not at all, and in halves: the
// deadline covers the whole answer. Slow answers in time, and answers that the server
// is busy, withdraw nothing.
func TestSlowAPIServer(t *testing.T) {
	t.Parallel()
	s := newAnnouncingSite(t, nil)
	calm := watchBystander(t, s)
	const url = "GET http://127.0.0.1:6443/readyz: "

	s.Readyz.Set("/readyz", stub.Answer{Delay: 100 * time.Millisecond})
	probed(t, s, 10)
	s.Readyz.Set("/readyz", stub.Answer{Status: http.StatusTooManyRequests})
	s.Shows(t, func(status admin.Status) error {
		return site.ErrorIf(status.Checks[0].Warning == "", "status does not warn of the overload")
	})
	s.Readyz.Set("/readyz", stub.Answer{})
	probed(t, s, 3)
	calm.untouched(t)
	for _, fault := range []struct {
		answer stub.Answer
		reason string
	}{
		{stub.Answer{Delay: 2 * time.Second}, url + "no answer within 300ms"},
		{stub.Answer{Hang: stub.HangHeaders}, url + "no answer within 300ms"},
		{stub.Answer{Hang: stub.HangBody}, url + "headers "},
	} {
		s.Readyz.Set("/readyz", fault.answer)
		withdrawn(t, s)
		because(t, s, fault.reason)
		s.Readyz.Set("/readyz", stub.Answer{})
		announced(t, s)
	}
}

// probed waits until the check has passed or failed this many times more.
func probed(t *testing.T, s *site.Session, times uint64) {
	t.Helper()
	var began, now uint64
	s.Shows(t, func(status admin.Status) error {
		now = status.Checks[0].Passes + status.Checks[0].Failures
		if began == 0 {
			began = now
		}
		return site.ErrorIf(now < began+times, "%d probes, want %d", now-began, times)
	})
}

// TestFlappingAPIServer makes the apiserver come and go all the time. The first time
// it goes, the VIP is withdrawn immediately; then its return is damped, so that the
// routers do not have to follow each time.
func TestFlappingAPIServer(t *testing.T) {
	t.Parallel()
	const (
		flaps = 25
		// With a hold-down of a minute: 8 at first, and one more a minute.
		most = 8
	)
	fast := strings.Replace(site.BothPeers, "{name: apiserver, http", "{name: apiserver, interval: 50ms, http", 1)
	s := newAnnouncingSite(t, site.Files{"herald/herald.yaml": fast})
	routes := site.WatchRoutes(t, s.Node("r1"))
	check := func(want health.State) {
		t.Helper()
		s.Shows(t, func(status admin.Status) error {
			return site.ErrorIf(status.Checks[0].State != want, "the check is %s, want %s", status.Checks[0].State, want)
		})
	}
	began := time.Now()
	for range flaps {
		s.Readyz.Set("/readyz", stub.Answer{Status: http.StatusInternalServerError})
		check(health.Unhealthy)
		s.Readyz.Set("/readyz", stub.Answer{})
		check(health.Healthy)
	}
	took := time.Since(began)
	withdrawals := 0
	for _, c := range routes.Since() {
		if len(c.Now) == 0 {
			withdrawals++
		}
	}
	t.Logf("%d failures in %v: %d withdrawals", flaps, took.Round(site.Poll), withdrawals)
	if limit := most + int(took/time.Minute); withdrawals == 0 || withdrawals > limit {
		t.Errorf("%d withdrawals for %d failures in %v, want 1 to %d", withdrawals, flaps, took, limit)
	}
	announced(t, s)
}
