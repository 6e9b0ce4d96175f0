package router_test

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/testenv/router"
)

// Speaker a authenticates, b does not. They are of different ASes, so that only
// the router's own restraint keeps it from passing on routes between them.
const labConfig = `
frr defaults datacenter
router bgp 64500
 bgp router-id 10.9.9.254
 no bgp default ipv4-unicast
 neighbor 10.9.1.1 remote-as 64512
 neighbor 10.9.1.1 password sesame
 neighbor 10.9.1.1 timers 1 3
 bgp bestpath as-path multipath-relax
 neighbor 10.9.2.1 remote-as 64513
 neighbor 10.9.2.1 timers 1 3
 neighbor fe80::1%toa remote-as 64512
 address-family ipv4 unicast
  neighbor 10.9.1.1 activate
  neighbor 10.9.1.1 prefix-list VIPS in
  neighbor 10.9.2.1 activate
  neighbor 10.9.2.1 prefix-list VIPS in
 exit-address-family
 address-family ipv6 unicast
  neighbor 10.9.1.1 activate
  neighbor 10.9.1.1 prefix-list VIPS6 in
  neighbor 10.9.2.1 activate
  neighbor 10.9.2.1 prefix-list VIPS6 in
  neighbor fe80::1%toa activate
  neighbor fe80::1%toa prefix-list VIPS6 in
 exit-address-family
exit
ip prefix-list VIPS seq 5 permit 10.99.0.0/24 ge 32
ipv6 prefix-list VIPS6 seq 5 permit fd00:99::/64 ge 128
`

const (
	vip4 = "10.99.0.10/32"
	vip6 = "fd00:99::10/128"
)

func TestRouter(t *testing.T) {
	l := newLab(t, labConfig)
	// What a predecessor left behind goes; what others own stays.
	ip(t, "-n %s route add 10.99.0.77/32 via 10.9.1.1 proto bgp metric 20", l.name)
	ip(t, "-n %s route add 10.99.0.78/32 via 10.9.1.1 proto bgp metric 30", l.name)
	daemon := l.router(t)
	a, _ := l.speaker(t, "a", "64512", "10.9.1.254", "sesame")
	b, bProcess := l.speaker(t, "b", "64513", "10.9.2.254", "")
	l.sessions(t, 2)
	l.eventually(t, "10.99.0.77/32")
	l.eventually(t, "10.99.0.78/32", "10.9.1.1")

	// The forbidden prefix goes ahead of the others: once they are there, it was refused.
	a.tell(t, "announce 10.98.0.1/32 10.9.1.1")
	a.tell(t, "announce %s 10.9.1.1", vip4)
	a.tell(t, "announce %s fd09:1::1", vip6)
	l.eventually(t, vip4, "10.9.1.1")
	l.eventually(t, vip6, "fd09:1::1")
	l.eventually(t, "10.98.0.1/32")

	b.tell(t, "announce %s 10.9.2.1", vip4)
	b.tell(t, "announce %s fd09:2::1", vip6)
	l.eventually(t, vip4, "10.9.1.1", "10.9.2.1")
	l.eventually(t, vip6, "fd09:1::1", "fd09:2::1")
	l.state(t, "both next hops", func(s *router.State) bool {
		r := stateRoute(s, vip4)
		return r != nil && fmt.Sprint(r.NextHops) == "[10.9.1.1 10.9.2.1]" && r.Problem == ""
	})

	// No flow moves that need not: the groups are resilient.
	for id, group := range map[string]string{vip4: "10.9.1.1 10.9.2.1", vip6: "fd09:1::1 fd09:2::1"} {
		if got := l.resilientGroup(t, id); got != group {
			t.Errorf("the resilient group of %s has the next hops %q, want %q", id, got, group)
		}
	}

	// A path that announces its end is used only as the last resort.
	a.tell(t, "announce %s 10.9.1.1 graceful-shutdown", vip4)
	l.eventually(t, vip4, "10.9.2.1")
	b.tell(t, "withdraw %s", vip4)
	l.eventually(t, vip4, "10.9.1.1")
	b.tell(t, "announce %s 10.9.2.1", vip4)
	l.eventually(t, vip4, "10.9.2.1")
	a.tell(t, "announce %s 10.9.1.1", vip4)
	l.eventually(t, vip4, "10.9.1.1", "10.9.2.1")

	// What someone else breaks is mended.
	ip(t, "-n %s route del %s", l.name, vip4)
	ip(t, "-n %s -6 route replace %s via fd09:1::1 proto bgp metric 20", l.name, vip6)
	l.eventually(t, vip4, "10.9.1.1", "10.9.2.1")
	l.eventually(t, vip6, "fd09:1::1", "fd09:2::1")

	a.tell(t, "withdraw %s", vip6)
	l.eventually(t, vip6, "fd09:2::1")

	// A dead speaker's routes go with its session, and come back with it.
	kill(t, bProcess, syscall.SIGKILL)
	l.eventually(t, vip4, "10.9.1.1")
	l.eventually(t, vip6)
	l.sessions(t, 1)
	l.state(t, "a reason for b's session only", func(s *router.State) bool {
		// In the order of addresses: a, b, and a's link-local one, never up.
		return s.Sessions[0].Reason == "" && s.Sessions[1].Reason != "" && s.Sessions[2].Reason == ""
	})
	b, _ = l.speaker(t, "b", "64513", "10.9.2.254", "")
	b.tell(t, "announce %s 10.9.2.1", vip4)
	l.eventually(t, vip4, "10.9.1.1", "10.9.2.1")

	for name, s := range map[string]*speaker{"a": a, "b": b} {
		if n := s.ask(t, "learned"); n != 0 {
			t.Errorf("speaker %s has learned %d routes, want none", name, n)
		}
	}

	// Stopped in an orderly way, the router takes its routes along.
	kill(t, daemon, syscall.SIGTERM)
	if hops := l.route(t, vip4); hops != nil {
		t.Errorf("route via %v is left after the router ended", hops)
	}
	if left := ip(t, "-n %s nexthop show proto 186", l.name); left != "" {
		t.Errorf("next hops are left after the router ended: %s", left)
	}
	if hops := l.route(t, "10.99.0.78/32"); hops == nil {
		t.Error("a route that is not the router's is gone")
	}

	// Speakers find their way back to a new router, past the socket of a killed one.
	daemon = l.router(t)
	l.eventually(t, vip4, "10.9.1.1", "10.9.2.1")
	kill(t, daemon, syscall.SIGKILL)
	l.router(t)
	l.sessions(t, 2)
	l.eventually(t, vip4, "10.9.1.1", "10.9.2.1")
}

// A second router by mistake does not get far, and does no harm.
func TestSecondRouter(t *testing.T) {
	l := newLab(t, labConfig)
	l.router(t)
	a, _ := l.speaker(t, "a", "64512", "10.9.1.254", "sesame")
	a.tell(t, "announce %s 10.9.1.1", vip4)
	l.eventually(t, vip4, "10.9.1.1")

	for socket, want := range map[string]string{
		l.socket():                 "another router listens there",
		l.socket() + ".of-its-own": "listen on port 179",
	} {
		var stderr strings.Builder
		second := l.run(t, "", "router "+l.config+" "+socket, func(cmd *exec.Cmd) { cmd.Stderr = &stderr })
		if err := second.Wait(); err == nil || !strings.Contains(stderr.String(), want) {
			t.Errorf("second router: %v: %s, want it to fail with %q", err, stderr.String(), want)
		}
		if got := l.route(t, vip4); !slices.Equal(got, []string{"10.9.1.1"}) {
			t.Errorf("next hops are %v after the second router, want the first one's", got)
		}
	}
}

// A link that goes down takes its next hops along, and gives them back.
func TestLinkFlap(t *testing.T) {
	// Speaker b's session outlives the flap, so its routes stay wanted.
	l := newLab(t, strings.Replace(labConfig, "neighbor 10.9.2.1 timers 1 3", "neighbor 10.9.2.1 timers 30 90", 1))
	l.router(t)
	a, _ := l.speaker(t, "a", "64512", "10.9.1.254", "sesame")
	b, _ := l.speaker(t, "b", "64513", "10.9.2.254", "")
	a.tell(t, "announce %s 10.9.1.1", vip4)
	b.tell(t, "announce %s 10.9.2.1", vip4)
	a.tell(t, "announce %s fd09:1::1", vip6)
	b.tell(t, "announce %s fd09:2::1", vip6)
	l.eventually(t, vip4, "10.9.1.1", "10.9.2.1")
	l.eventually(t, vip6, "fd09:1::1", "fd09:2::1")

	ip(t, "-n %s link set tob down", l.name)
	// While b is still believed in, the router must get along without it.
	a.tell(t, "withdraw %s", vip4)
	a.tell(t, "announce %s 10.9.1.1", vip4)
	l.state(t, "the problem", func(s *router.State) bool {
		r := stateRoute(s, vip4)
		return r != nil && r.Problem != ""
	})
	ip(t, "-n %s route del %s", l.name, vip4)
	poll(t, func() bool { return slices.Contains(l.route(t, vip4), "10.9.1.1") },
		func() string { return fmt.Sprintf("next hops %v, want a's", l.route(t, vip4)) })

	ip(t, "-n %s link set tob up", l.name)
	ip(t, "-n %s addr add fd09:2::254/64 dev tob nodad", l.name) // the kernel took it with the link
	l.eventually(t, vip4, "10.9.1.1", "10.9.2.1")
	l.eventually(t, vip6, "fd09:1::1", "fd09:2::1")
	l.state(t, "no problem", func(s *router.State) bool {
		r4, r6 := stateRoute(s, vip4), stateRoute(s, vip6)
		return r4 != nil && r4.Problem == "" && r6 != nil && r6.Problem == ""
	})
}

// A session between link-local addresses, and next hops that need their link named.
func TestLinkLocal(t *testing.T) {
	l := newLab(t, labConfig)
	l.router(t)
	a, _ := l.speaker(t, "a", "64512", "fe80::254%up", "")
	b, _ := l.speaker(t, "b", "64513", "10.9.2.254", "")
	a.tell(t, "announce %s fe80::1", vip6)
	l.eventually(t, vip6, "fe80::1%toa")
	b.tell(t, "announce %s fe80::1", vip6)
	l.eventually(t, vip6, "fe80::1%toa", "fe80::1%tob")
}

// TestWithdrawLatency reports how long a withdrawal takes from the speaker's
// decision to the change of the router's kernel route.
func TestWithdrawLatency(t *testing.T) {
	l := newLab(t, labConfig)
	updates := make(chan netlink.RouteUpdate, 64)
	done := make(chan struct{})
	if err := netlink.RouteSubscribeAt(l.ns, updates, done); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		close(done)
		for range updates {
		}
	})
	l.router(t)
	a, _ := l.speaker(t, "a", "64512", "10.9.1.254", "sesame")
	b, _ := l.speaker(t, "b", "64513", "10.9.2.254", "")
	for _, vip := range []string{vip4, vip6} {
		hopA, hopB := "10.9.1.1", "10.9.2.1"
		if vip == vip6 {
			hopA, hopB = "fd09:1::1", "fd09:2::1"
		}
		a.tell(t, "announce %s %s", vip, hopA)
		l.eventually(t, vip, hopA)
		var one, last []time.Duration
		for range 50 {
			b.tell(t, "announce %s %s", vip, hopB)
			l.eventually(t, vip, hopA, hopB)
			drain(updates)
			began := b.tell(t, "withdraw %s", vip)
			one = append(one, await(t, updates, vip, unix.RTM_NEWROUTE).Sub(began))
			l.eventually(t, vip, hopA)
			drain(updates)
			began = a.tell(t, "withdraw %s", vip)
			last = append(last, await(t, updates, vip, unix.RTM_DELROUTE).Sub(began))
			a.tell(t, "announce %s %s", vip, hopA)
			l.eventually(t, vip, hopA)
		}
		for name, took := range map[string][]time.Duration{"one of two next hops": one, "the last next hop": last} {
			slices.Sort(took)
			t.Logf("%s, withdrawal of %s: median %v, longest %v of %d", vip, name, took[len(took)/2], took[len(took)-1], len(took))
		}
	}
}

// await returns when the kernel tells of a change of the route to prefix.
func await(t *testing.T, updates <-chan netlink.RouteUpdate, prefix string, kind uint16) time.Time {
	t.Helper()
	timeout := time.NewTimer(30 * time.Second)
	defer timeout.Stop()
	for {
		select {
		case u := <-updates:
			if u.Type == kind && u.Dst != nil && u.Dst.String() == prefix {
				return time.Now()
			}
		case <-timeout.C:
			t.Fatalf("no change of route %s", prefix)
		}
	}
}

func drain(updates <-chan netlink.RouteUpdate) {
	for {
		select {
		case <-updates:
		default:
			return
		}
	}
}
