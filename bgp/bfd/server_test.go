package bfd_test

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/bgp/bfd"
)

// Two servers bring up a session in every family, and notify of it once.
func TestComesUp(t *testing.T) {
	t.Parallel()
	a, b := wire(t)
	sa, sb := a.speaker(), b.speaker()
	multihop := func(c bfd.Config, local string) bfd.Config {
		c.Multihop, c.Local, c.MinTTL = true, netip.MustParseAddr(local), 250
		return c
	}
	a.Add("eth0", "10.0.0.11/24")
	b.Add("eth0", "10.0.0.12/24")
	sa.keep(dst("10.0.0.2"), dst("fd00::2"), dst("fe80::2%eth0"), multihop(dst("10.0.0.12"), "10.0.0.11"))
	sb.keep(dst("10.0.0.1"), dst("fd00::1"), dst("fe80::1%eth0"), multihop(dst("10.0.0.11"), "10.0.0.12"))
	for peer, local := range map[string]string{"10.0.0.2": "10.0.0.1", "fd00::2": "fd00::1", "fe80::2%eth0": "fe80::1%eth0", "10.0.0.12": "10.0.0.11"} {
		sa.up(peer)
		sb.up(local)
		sa.becomes(peer, "the agreed intervals", func(st bfd.Status) bool {
			return time.Duration(st.TxInterval) == interval && time.Duration(st.DetectionTime) == detectionTime
		})
		if st := sa.status(peer); st.Local != netip.MustParseAddr(local) || st.Reason != "" || st.Failed || st.Downs != 0 {
			t.Errorf("status: %+v", st)
		}
		sa.notifies(peer, bfd.Up)
		if states, _ := sa.history(peer); slices.Compare(states, []bfd.State{bfd.Init, bfd.Up}) != 0 && slices.Compare(states, []bfd.State{bfd.Up}) != 0 {
			t.Errorf("notified of %s: %v", peer, states)
		}
	}
}

// When one direction is lost, both ends go down, and their reasons name the direction.
func TestLosesOneDirection(t *testing.T) {
	t.Parallel()
	for _, peer := range []string{"10.0.0.2", "fd00::2", "fe80::2%eth0"} {
		sa, sb := joined(t, peer)
		own := backFrom(peer)
		address, _, _ := strings.Cut(peer, "%")
		sa.lose(address, true)
		sb.becomes(own, "down: no packet arrives", func(st bfd.Status) bool {
			return st.State == bfd.Down && st.Failed && st.Downs == 1 && st.Diagnostic == bfd.DetectionTimeExpired && strings.Contains(st.Reason, "no packet from")
		})
		sa.becomes(peer, "down by the peer's packet", func(st bfd.Status) bool {
			return st.Failed && st.Downs == 1 && st.Reason == "the peer receives no packets from this node"
		})
		sa.fails(peer)
		sa.lose(address, false)
		sa.up(peer)
		sb.up(own)
		if st := sa.status(peer); st.Failed || st.Reason != "" {
			t.Errorf("up again: %+v", st)
		}
	}
}

// When a session is removed or its server closes, the peer sees a shutdown and not a failure. The other sessions
// stay up.
func TestShutDownIsNoFailure(t *testing.T) {
	t.Parallel()
	sa, sb := joined(t, "10.0.0.2", "fd00::2")
	shut := func(st bfd.Status) bool {
		return st.State == bfd.Down && st.Remote == bfd.AdminDown && !st.Failed && st.Reason == "the peer has shut the session down"
	}
	sa.keep(dst("fd00::2"))
	sb.becomes("10.0.0.1", "shut down by the peer", shut)
	sa.up("fd00::2")
	if got := sa.Statuses(); len(got) != 1 || sa.status("fd00::2").Downs != 0 {
		t.Errorf("after the other session is removed: %+v", got)
	}
	sa.keep(dst("10.0.0.2"), dst("fd00::2"))
	sb.up("10.0.0.1")

	sa.close()
	sb.becomes("10.0.0.1", "shut down by the peer", shut)
	sb.becomes("fd00::1", "shut down by the peer", shut)
	for _, peer := range []string{"10.0.0.1", "fd00::1"} {
		if _, failures := sb.history(peer); failures != 0 {
			t.Errorf("session with %s: %d failures notified", peer, failures)
		}
	}
}

// A changed interval or multiplier reaches both ends, and the session stays up.
func TestChangeStaysUp(t *testing.T) {
	t.Parallel()
	sa, sb := joined(t, "10.0.0.2")
	for _, slower := range []time.Duration{300 * time.Millisecond, 150 * time.Millisecond} {
		c := dst("10.0.0.2")
		c.Interval, c.Multiplier = slower, 10
		sa.keep(c)
		agreed := func(multiplier time.Duration) func(bfd.Status) bool {
			return func(st bfd.Status) bool {
				return time.Duration(st.TxInterval) == slower && time.Duration(st.DetectionTime) == multiplier*slower
			}
		}
		sa.becomes("10.0.0.2", "the new interval", agreed(multiplier))
		sb.becomes("10.0.0.1", "the new interval", agreed(10))
	}
	if x, y := sa.status("10.0.0.2"), sb.status("10.0.0.1"); x.Downs+y.Downs != 0 {
		t.Errorf("went down: %+v, %+v", x, y)
	}
}

// A peer that dies without a goodbye and restarts with a new discriminator fails first, and then the session comes
// up again.
func TestRestart(t *testing.T) {
	t.Parallel()
	sa, sb := joined(t, "10.0.0.2")
	sb.Kill()
	again := sb.speaker()
	again.keep(dst("10.0.0.1"))
	again.up("10.0.0.1")
	sa.becomes("10.0.0.2", "up after a failure", func(st bfd.Status) bool { return st.State == bfd.Up && st.Downs == 1 })
	sa.fails("10.0.0.2")
}

// While another program has the port, the status says so, and the session comes up once the port is free. The
// program keeps its packets even if it allows sharing the port.
func TestPortInUse(t *testing.T) {
	t.Parallel()
	a, b := wire(t)
	var other net.PacketConn
	must(t, a.do(func() (err error) {
		other, err = sharing.ListenPacket(t.Context(), "udp4", ":3784")
		return err
	}))
	sa, sb := a.speaker(), b.speaker()
	sa.keep(dst("10.0.0.2"), dst("fd00::2"))
	sb.keep(dst("10.0.0.1"), dst("fd00::1"))
	sa.becomes("10.0.0.2", "the reason", func(st bfd.Status) bool {
		return st.State == bfd.Down && st.Reason == "cannot listen on UDP port 3784: address already in use: another BFD daemon runs on this host"
	})
	sa.up("fd00::2")
	other.Close()
	sa.up("10.0.0.2")
}

// sharing makes sockets with SO_REUSEADDR.
var sharing = net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
	return errors.Join(c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) }), err)
}}

// A problem is reported, and its cure needs no restart.
func TestReasons(t *testing.T) {
	t.Parallel()
	a, b := wire(t)
	sa := a.speaker()
	bound := dst("10.0.0.2")
	bound.Local = netip.MustParseAddr("10.0.0.9")
	sa.keep(bound, dst("fd00::2"), dst("10.7.0.2"), dst("fe80::2%eth7"), dst("10.0.0.77"))
	for peer, reason := range map[string]string{
		"10.0.0.2":     "cannot send to 10.0.0.2: cannot assign requested address",
		"fd00::2":      "fd00::2 does not listen on UDP port 3784: BFD is not enabled there",
		"10.7.0.2":     "cannot send to 10.7.0.2: network is unreachable",
		"fe80::2%eth7": "cannot send to fe80::2%eth7: interface eth7: route ip+net: no such network interface",
		"10.0.0.77":    "no packet from 10.0.0.77 on UDP port 3784 yet",
	} {
		sa.becomes(peer, reason, func(st bfd.Status) bool { return st.State == bfd.Down && st.Reason == reason })
	}
	sb := b.speaker()
	sb.keep(dst("10.0.0.1"), dst("fd00::1"))
	sb.becomes("10.0.0.1", "not up", func(st bfd.Status) bool { return st.State != bfd.Up })
	a.Add("eth0", "10.0.0.9/24")
	sa.up("fd00::2")
	sa.becomes("10.0.0.2", "the disagreement about addresses", func(st bfd.Status) bool {
		return st.Reason == "10.0.0.2 sends to 10.0.0.1 and gets packets from 10.0.0.9: set the local address"
	})
	sb.keep(dst("10.0.0.9"), dst("fd00::1"))
	sa.up("10.0.0.2")
}

// A session sends from another address when its source address disappears.
func TestAddressChanges(t *testing.T) {
	t.Parallel()
	sa, sb := joined(t, "10.0.0.2")
	sa.Remove("eth0", "10.0.0.1/24")
	sa.Add("eth0", "10.0.0.3/24")
	sb.keep(dst("10.0.0.3"))
	sa.becomes("10.0.0.2", "up from the new address", func(st bfd.Status) bool {
		return st.State == bfd.Up && st.Local == netip.MustParseAddr("10.0.0.3")
	})
}

// A server that is closed leaves no goroutine and no socket.
func TestCloseLeavesNothing(t *testing.T) {
	a, b := wire(t)
	sb := b.speaker()
	sb.keep(dst("10.0.0.1"))
	before := goleak.IgnoreCurrent()
	sa := a.speaker()
	sa.keep(dst("10.0.0.2"), dst("fd00::2"))
	sa.up("10.0.0.2")
	sa.close()
	goleak.VerifyNone(t, before)
	must(t, a.do(func() error {
		for _, network := range []string{"udp4", "udp6"} {
			c, err := net.ListenUDP(network, &net.UDPAddr{Port: 3784})
			if err != nil {
				return err
			}
			c.Close()
		}
		return nil
	}))
}
