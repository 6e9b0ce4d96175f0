package nft

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables/expr"

	"github.com/herald-vip/herald/balancer"
)

// lasts returns the longest remaining conntrack timeout of the machine's connections to an address in a TCP state; 0 without
// one.
func (m *machine) lasts(dst netip.AddrPort, state string) time.Duration {
	m.T.Helper()
	var most time.Duration
	for line := range strings.Lines(m.Run("", "cat", "/proc/net/nf_conntrack")) {
		f := strings.Fields(line) // ipv4 2 tcp 6 117 SYN_SENT src=… dst=… sport=… dport=…
		if len(f) < 10 || f[5] != state || f[7] != "dst="+dst.Addr().StringExpanded() || f[9] != fmt.Sprintf("dport=%d", dst.Port()) {
			continue
		}
		seconds, err := strconv.Atoi(f[4])
		m.Must(err)
		most = max(most, time.Duration(seconds)*time.Second)
	}
	return most
}

// Half-open connections, as of a client with a forged address, are forgotten soon, and open ones are not.
func TestHalfOpenIsForgotten(t *testing.T) {
	s := newSite(t)
	s.holds(s.node)
	p := s.node.idlePlane(Options{})
	s.must(p.Apply([]balancer.Service{s.service(vip4, vip6)}))
	b := bridgeTo(t, p, s.masters...)
	b.Open(time.Minute, vip4.Addr())
	s.must(b.plane.owner.openBridge())
	remembers := func(dst netip.AddrPort, state string, least, most time.Duration) {
		t.Helper()
		if got := s.node.lasts(dst, state); got < least || got > most {
			t.Errorf("%s to %s is remembered for %v, want %v to %v", state, dst, got, least, most)
		}
	}
	open := s.client.connect(vip4)
	remembers(vip4, "ESTABLISHED", 24*time.Hour, 1000*time.Hour)

	s.client.NFT("add table inet mute; add chain inet mute out { type filter hook output priority 0; }; add rule inet mute out tcp flags & (syn | ack) == ack drop")
	for _, dst := range []netip.AddrPort{vip4, vip6} {
		s.client.in(func() error {
			c, err := net.DialTimeout("tcp", dst.String(), patience)
			if err == nil {
				defer c.Close()
			}
			return err
		})
		remembers(dst, "SYN_RECV", 1, openingTime)
	}
	s.client.Run("", "nft", "delete", "table", "inet", "mute")

	for _, m := range s.masters {
		m.NFT("add table inet deaf; add chain inet deaf in { type filter hook input priority 0; }; add rule inet deaf in tcp flags & (syn | ack) == syn drop")
	}
	bridged := netip.AddrPortFrom(vip4.Addr(), port+1)
	for _, dst := range []netip.AddrPort{vip4, vip6, bridged} {
		s.client.in(func() error {
			if _, err := net.DialTimeout("tcp", dst.String(), 100*time.Millisecond); err == nil {
				return errors.New("a server answers")
			}
			return nil
		})
		remembers(dst, "SYN_SENT", 1, openingTime)
	}
	s.must(open.echoes())
}

// A kernel without such timeouts balances too.
func TestWithoutTimeouts(t *testing.T) {
	s := newSite(t)
	p := s.node.idlePlane(Options{})
	services := []balancer.Service{s.service(local)}
	for _, halfOpen := range [][]expr.Any{nil, p.owner.want.halfOpen, nil} {
		p.owner.want.halfOpen = halfOpen
		s.must(p.Apply(services))
		if got, want := strings.Contains(s.node.Run("", "nft", "list", "table", "inet", tableName), "ct timeout set"), halfOpen != nil; got != want {
			t.Errorf("timeouts are set: %v, want %v", got, want)
		}
		s.node.served(local, 3)
	}
}
