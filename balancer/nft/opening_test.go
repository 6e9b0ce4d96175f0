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

// lasts is for how long the machine's conntrack remembers a connection to a place that is in a state
// of TCP, if no packet of it comes any more; the longest of several, and 0 if there is none.
func (m *machine) lasts(to netip.AddrPort, state string) time.Duration {
	m.t.Helper()
	var most time.Duration
	for line := range strings.Lines(m.run("", "cat", "/proc/net/nf_conntrack")) {
		f := strings.Fields(line) // ipv4 2 tcp 6 117 SYN_SENT src=… dst=… sport=… dport=…
		if len(f) < 10 || f[5] != state || f[7] != "dst="+to.Addr().StringExpanded() || f[9] != fmt.Sprintf("dport=%d", to.Port()) {
			continue
		}
		seconds, err := strconv.Atoi(f[4])
		m.must(err)
		most = max(most, time.Duration(seconds)*time.Second)
	}
	return most
}

// Who begins to open connections and does not go on, as who forges its address, is forgotten soon,
// and what is open is not.
func TestHalfOpenIsForgotten(t *testing.T) {
	s := newSite(t)
	s.holds(s.node)
	p := s.node.idlePlane(Options{})
	s.must(p.Apply([]balancer.Service{s.service(vip4, vip6)}))
	b := bridgeTo(t, p, s.masters...)
	b.Open(time.Minute, vip4.Addr())
	s.must(b.open())
	remembers := func(to netip.AddrPort, state string, least, most time.Duration) {
		t.Helper()
		if got := s.node.lasts(to, state); got < least || got > most {
			t.Errorf("%s to %s is remembered for %v, want %v to %v", state, to, got, least, most)
		}
	}
	open := s.client.connect(vip4)
	remembers(vip4, "ESTABLISHED", 24*time.Hour, 1000*time.Hour)

	s.client.run("add table inet mute; add chain inet mute out { type filter hook output priority 0; }; add rule inet mute out tcp flags & (syn | ack) == ack drop", "nft", "-f", "-")
	for _, to := range []netip.AddrPort{vip4, vip6} {
		s.client.in(func() error {
			c, err := net.DialTimeout("tcp", to.String(), patience)
			if err == nil {
				defer c.Close()
			}
			return err
		})
		remembers(to, "SYN_RECV", 1, openingTime)
	}
	s.client.run("", "nft", "delete", "table", "inet", "mute")

	for _, m := range s.masters {
		m.run("add table inet deaf; add chain inet deaf in { type filter hook input priority 0; }; add rule inet deaf in tcp flags & (syn | ack) == syn drop", "nft", "-f", "-")
	}
	bridged := netip.AddrPortFrom(vip4.Addr(), port+1)
	for _, to := range []netip.AddrPort{vip4, vip6, bridged} {
		s.client.in(func() error {
			if _, err := net.DialTimeout("tcp", to.String(), 100*time.Millisecond); err == nil {
				return errors.New("somebody answers")
			}
			return nil
		})
		remembers(to, "SYN_SENT", 1, openingTime)
	}
	s.must(open.echoes())
}

// A kernel that cannot forget them earlier balances all the same.
func TestWithoutTimeouts(t *testing.T) {
	s := newSite(t)
	p := s.node.idlePlane(Options{})
	services := []balancer.Service{s.service(local)}
	for _, brief := range [][]expr.Any{nil, p.want.brief, nil} {
		p.want.brief = brief
		s.must(p.Apply(services))
		if got, want := strings.Contains(s.node.run("", "nft", "list", "table", "inet", tableName), "ct timeout set"), brief != nil; got != want {
			t.Errorf("timeouts are set: %v, want %v", got, want)
		}
		s.node.served(local, 3)
	}
}
