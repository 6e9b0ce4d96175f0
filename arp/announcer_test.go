package arp

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herald-vip/herald/netutil"
)

func TestAnnounce(t *testing.T) {
	inBench(t, func(b *bench) {
		b.must(b.Announce("eth0", vip4, vip6))
		for i, want := range [][]byte{announcement(self, vip4)[0], announcement(self, vip4)[1], announcement(self, vip6)[0]} {
			if sent := b.net.peek(); len(sent) != 3 || !slices.Equal(sent[i].frame, want) {
				t.Fatalf("when Announce returns %d frames are sent, the %dth is not as it should be", len(sent), i)
			}
		}
		b.wait(2*time.Minute + 5*time.Second)
		want := []time.Duration{0, 50 * time.Millisecond, 150 * time.Millisecond, 350 * time.Millisecond, 750 * time.Millisecond,
			1500 * time.Millisecond, 3 * time.Second, 63 * time.Second, 123 * time.Second}
		if got := b.sentAt(announcement(self, vip4)[1]); !slices.Equal(got, want) {
			t.Errorf("sent at %v, want %v", got, want)
		}
		if got := b.Stats(); got.Announced != uint64(2*len(want)) || got.Failed != 0 {
			t.Errorf("stats %+v", got)
		}
		b.Withdraw("eth0", vip4)
		b.wait(time.Hour)
		for _, s := range b.net.take() {
			if c, _ := parse(s.frame); c.addr != vip6 {
				t.Fatalf("%v announced after it was withdrawn", c.addr)
			}
		}
		b.Withdraw("eth0", vip6, vip4)
		b.Withdraw("eth1", vip4)
		b.wait(time.Hour)
		if sent, open := b.net.take(), b.net.open4and6(); len(sent) > 0 || open > 0 {
			t.Errorf("%d frames sent, %d wires open, though all is withdrawn", len(sent), open)
		}
	})
}

func TestAnnounceRefuses(t *testing.T) {
	inBench(t, func(b *bench) {
		b.net.set(netutil.Link{Name: "down0", Index: 3, MAC: member.hardware()})
		b.net.set(netutil.Link{Name: "tun0", Index: 4, Up: true})
		for _, tt := range []struct{ link, addr, want string }{
			{"eth1", "10.0.0.99", "announce 10.0.0.99 on eth1: there is no such link"},
			{"down0", "10.0.0.99", "announce 10.0.0.99 on down0: the link is down"},
			{"tun0", "10.0.0.99", "announce 10.0.0.99 on tun0: it has no Ethernet address"},
			{"eth0", "224.0.0.1", `announce 224.0.0.1 on eth0: "224.0.0.1" is not a unicast address beyond the link`},
			{"eth0", "fe80::1%eth0", `announce fe80::1%eth0 on eth0: "fe80::1%eth0" is not a unicast address beyond the link`},
		} {
			if err := b.Announce(tt.link, netip.MustParseAddr(tt.addr)); err == nil || err.Error() != tt.want {
				t.Errorf("error %v\nwant %s", err, tt.want)
			}
		}
		b.must(b.Announce("eth0", netip.MustParseAddr("::ffff:10.0.0.99")))
		b.net.failWith(errFake)
		if err := b.Announce("eth0", vip4, vip6, vip4.Next()); err == nil || !strings.HasPrefix(err.Error(), "announce 3 addresses on eth0: ") {
			t.Errorf("error %v", err)
		}
		b.Apply([]Watched{{Link: "eth0", Addr: netip.Addr{}}, {Link: "eth0", Addr: netip.MustParseAddr("ff02::1")}})
		if got := b.Status(); len(got) != 0 {
			t.Errorf("watches %+v", got)
		}
	})
}

// Once a lease has ended nothing is announced, whatever is due.
func TestLimit(t *testing.T) {
	inBench(t, func(b *bench) {
		b.Apply([]Watched{{Link: "eth0", Addr: vip4}})
		b.must(b.Announce("eth0", vip4))
		b.Limit(time.Now().Add(100*time.Millisecond), "eth0", vip4, vip6)
		b.wait(110 * time.Millisecond)
		b.net.show(2, announcement(outsider, vip4)...)
		b.net.set(netutil.Link{Name: "eth0", Index: 2, Up: true, MAC: member.hardware()})
		b.wait(time.Hour)
		if got, want := b.sentAt(announcement(self, vip4)[0]), []time.Duration{0, 50 * time.Millisecond}; !slices.Equal(got, want) {
			t.Errorf("sent at %v, want %v", got, want)
		}
		b.Limit(time.Now().Add(30*time.Second), "eth0", vip4)
		b.must(b.Announce("eth0", vip4)) // anew, without limit
		b.wait(63 * time.Second)
		if got := len(b.sentAt(announcement(member, vip4)[0])); got != len(burst)+1 {
			t.Errorf("sent %d times, want %d", got, len(burst)+1)
		}
	})
}

func TestLinkChanges(t *testing.T) {
	with := func(change func(*netutil.Link)) netutil.Link { l := eth0; change(&l); return l }
	for name, tt := range map[string]struct {
		steps []netutil.Link
		src   mac
		index int
	}{
		"down and up":         {[]netutil.Link{with(func(l *netutil.Link) { l.Up = false }), eth0}, self, 2},
		"deleted and remade":  {[]netutil.Link{{Name: "eth0"}, with(func(l *netutil.Link) { l.Index = 9 })}, self, 9},
		"remade between":      {[]netutil.Link{with(func(l *netutil.Link) { l.Index = 9 })}, self, 9},
		"another MAC":         {[]netutil.Link{with(func(l *netutil.Link) { l.MAC = member.hardware() })}, member, 2},
		"no Ethernet between": {[]netutil.Link{with(func(l *netutil.Link) { l.MAC = nil }), eth0}, self, 2},
	} {
		t.Run(name, func(t *testing.T) {
			inBench(t, func(b *bench) {
				b.Apply([]Watched{{Link: "eth0", Addr: vip4}, {Link: "eth0", Addr: vip6, Policy: Yield}})
				b.must(b.Announce("eth0", vip4, vip6))
				b.wait(10 * time.Second)
				for i, l := range tt.steps {
					b.net.take()
					b.net.set(l)
					if b.wait(time.Second); i < len(tt.steps)-1 && len(b.net.peek()) > 0 {
						t.Errorf("%d frames are sent while the link cannot be used", len(b.net.peek()))
					}
				}
				b.wait(10 * time.Second)
				sent := b.net.take()
				if len(sent) != 3*len(burst) {
					t.Errorf("%d frames are sent, want %d", len(sent), 3*len(burst))
				}
				for _, s := range sent {
					if c, ok := parse(s.frame); !ok || c.src != tt.src || s.link != tt.index {
						t.Errorf("sent on link %d: %+v", s.link, c)
					}
				}
				b.net.show(tt.index, announcement(outsider, vip6)...)
				if got := b.states(); !slices.Equal(got, []State{Free, Free, Taken}) {
					t.Errorf("findings %v", got)
				}
				if n := b.net.open4and6(); n != 2 {
					t.Errorf("%d wires are open", n)
				}
				b.net.set(netutil.Link{Name: "other0", Index: 20, Up: true})
				if b.wait(time.Second); len(b.net.take()) > 0 {
					t.Error("announced anew because of another link")
				}
			})
		})
	}
}

// A link that appears after all is announced on at once.
func TestLinkAppears(t *testing.T) {
	inBench(t, func(b *bench) {
		b.Apply([]Watched{{Link: "eth1", Addr: vip4, Probe: true}})
		if err := b.Announce("eth1", vip6); err == nil {
			t.Error("no error")
		}
		b.wait(time.Hour)
		if got := b.states(); !slices.Equal(got, []State{Unknown}) {
			t.Errorf("findings %v", got)
		}
		b.net.set(netutil.Link{Name: "eth1", Index: 7, Up: true, MAC: member.hardware()})
		b.wait(time.Second)
		if got := b.states(); !slices.Equal(got, []State{Free}) {
			t.Errorf("findings %v", got)
		}
		if sent := b.net.take(); len(sent) != probes+5 || sent[0].at.Sub(b.start) != time.Hour {
			t.Errorf("%d frames are sent", len(sent))
		}
	})
}

// A wire that fails, or cannot be opened, is opened later.
func TestBrokenWires(t *testing.T) {
	inBench(t, func(b *bench) {
		b.net.failWith(errFake)
		b.Apply([]Watched{{Link: "eth0", Addr: vip4}})
		if err := b.Announce("eth0", vip4); err == nil || !strings.Contains(err.Error(), errFake.Error()) {
			t.Errorf("error %v", err)
		}
		b.wait(10 * time.Second)
		b.net.failWith(nil)
		b.wait(5 * time.Second)
		if got := len(b.sentAt(announcement(self, vip4)[0])); got != len(burst) {
			t.Errorf("announced %d times when that was possible, want %d", got, len(burst))
		}
		if got := b.log.String(); strings.Count(got, "cannot announce or watch") != 1 || strings.Count(got, "can announce and watch") != 1 {
			t.Errorf("log:\n%s", got)
		}
		b.net.breakWires()
		b.wait(5 * time.Second)
		if got := len(b.sentAt(announcement(self, vip4)[0])); got != len(burst) || b.net.open4and6() != 1 {
			t.Errorf("announced %d times after a wire failed, want %d; %d are open", got, len(burst), b.net.open4and6())
		}
		if b.Stats().Failed == 0 {
			t.Error("no failure is counted")
		}
	})
}

func TestProbe(t *testing.T) {
	for _, addr := range []netip.Addr{vip4, vip6} {
		inBench(t, func(b *bench) {
			b.Members([]net.HardwareAddr{member.hardware(), {1, 2, 3}})
			b.Apply([]Watched{{Link: "eth0", Addr: addr, Probe: true}})
			b.wait(150 * time.Millisecond)
			b.net.show(2, announcement(member, addr)...) // answers too
			b.net.show(2, probe(self, addr))             // a loop in the network
			b.wait(time.Second)
			if got, want := b.sentAt(probe(self, addr)), []time.Duration{0, probeEvery, 2 * probeEvery}; !slices.Equal(got, want) {
				t.Errorf("%v: probes at %v, want %v", addr, got, want)
			}
			if got := b.states(); !slices.Equal(got, []State{Unknown, Free}) {
				t.Errorf("%v: findings %v", addr, got)
			}

			b.Apply(nil)
			b.Apply([]Watched{{Link: "eth0", Addr: addr, Probe: true}})
			b.wait(150 * time.Millisecond)
			b.net.show(2, announcement(outsider, addr)[0])
			if got := b.states(); !slices.Equal(got, []State{Unknown, Taken}) {
				t.Errorf("%v: findings %v", addr, got)
			}
			if got := b.Status(); len(got) != 1 || got[0].State != Taken || got[0].MAC.String() != outsider.hardware().String() || got[0].Count != 1 {
				t.Errorf("%v: status %+v", addr, got)
			}
			if got := b.Stats(); got.Probed != 5 || got.Announced != 0 || got.Conflicts != 1 {
				t.Errorf("%v: stats %+v", addr, got)
			}
		})
	}
}

// An address that is announced is not probed any more: this node would be asking itself.
func TestAnnounceEndsProbe(t *testing.T) {
	inBench(t, func(b *bench) {
		b.Apply([]Watched{{Link: "eth0", Addr: vip4, Probe: true}})
		synctest.Wait()
		b.must(b.Announce("eth0", vip4))
		b.wait(time.Second)
		if got := b.states(); !slices.Equal(got, []State{Unknown, Free}) || b.Stats().Probed != 1 {
			t.Errorf("findings %v, %d probes", got, b.Stats().Probed)
		}
		b.Apply(nil)
		b.Apply([]Watched{{Link: "eth0", Addr: vip4, Probe: true}})
		if got := b.states(); !slices.Equal(got, []State{Free}) {
			t.Errorf("findings %v", got)
		}
	})
}

func TestConflict(t *testing.T) {
	for _, policy := range []Policy{Defend, Yield} {
		inBench(t, func(b *bench) {
			b.Apply([]Watched{{Link: "eth0", Addr: vip4, Policy: policy}, {Link: "eth0", Addr: vip6, Policy: policy}})
			b.must(b.Announce("eth0", vip4, vip6))
			b.wait(10 * time.Second)
			b.net.take()
			b.states()
			at := time.Since(b.start)
			for range 20 { // within 2 s
				b.net.show(2, announcement(outsider, vip4)...)
				b.net.show(2, probe(outsider, vip6)) // harmless
				b.wait(100 * time.Millisecond)
			}
			want := []time.Duration{at, at + time.Second, at + 2*time.Second}
			if policy == Yield {
				want = nil
			}
			if got := b.sentAt(announcement(self, vip4)[0]); !slices.Equal(got, want) {
				t.Errorf("%v: announced at %v, want %v", policy, got, want)
			}
			if got := b.states(); !slices.Equal(got, []State{Taken}) {
				t.Errorf("%v: findings %v", policy, got)
			}
			if got := b.Stats(); got.Conflicts != 40 || got.Heard != 60 || got.Defended != uint64(len(want)) {
				t.Errorf("%v: stats %+v", policy, got)
			}
			b.net.show(2, announcement(mac{2, 0, 0, 0, 0, 0xef}, vip4)...)
			b.wait(quiet)
			if got := b.states(); !slices.Equal(got, []State{Free}) {
				t.Errorf("%v: findings %v", policy, got)
			}
			log := b.log.String()
			for _, line := range []string{"someone outside the electorate uses a VIP", "one more outside", "nobody outside",
				"mac=02:00:00:00:00:ee", "mac=02:00:00:00:00:ef"} {
				if strings.Count(log, line) != 1 {
					t.Errorf("%v: the log has %q %d times:\n%s", policy, line, strings.Count(log, line), log)
				}
			}
		})
	}
}

// A member that announces what is announced here has not heard of it. Neighbours have
// heard the member, so they are told again, but not before this node may learn that it is
// the one who is mistaken.
func TestMemberClaims(t *testing.T) {
	inBench(t, func(b *bench) {
		b.Members([]net.HardwareAddr{member.hardware()})
		b.Apply([]Watched{{Link: "eth0", Addr: vip4, Policy: Yield}})
		b.must(b.Announce("eth0", vip4))
		b.wait(10 * time.Second)
		b.net.take()
		at := time.Since(b.start)
		b.net.show(2, announcement(member, vip4)...)
		b.wait(10 * time.Second)
		if got := b.sentAt(announcement(self, vip4)[0]); !slices.Equal(got, []time.Duration{at + settle}) {
			t.Errorf("announced at %v, want %v", got, at+settle)
		}
		b.net.show(2, announcement(member, vip4)...)
		b.wait(settle / 2)
		b.Withdraw("eth0", vip4)
		b.wait(time.Minute)
		if got := b.net.take(); len(got) > 0 {
			t.Errorf("%d frames after it was withdrawn", len(got))
		}
		if got := b.states(); !slices.Equal(got, []State{Free}) {
			t.Errorf("findings %v", got)
		}
	})
}

// Who turns out to be a member, or this node, is no offender.
func TestMemberIsLearnt(t *testing.T) {
	inBench(t, func(b *bench) {
		b.Apply([]Watched{{Link: "eth0", Addr: vip4}, {Link: "eth0", Addr: vip6}})
		b.net.show(2, announcement(member, vip4)...)
		b.net.show(2, announcement(outsider, vip6)...)
		if got := b.states(); !slices.Equal(got, []State{Free, Free, Taken, Taken}) {
			t.Errorf("findings %v", got)
		}
		b.Members([]net.HardwareAddr{member.hardware()})
		b.net.set(netutil.Link{Name: "eth1", Index: 3, Up: true, MAC: outsider.hardware()})
		if got := b.states(); !slices.Equal(got, []State{Free, Free}) {
			t.Errorf("findings %v", got)
		}
	})
}

// A flood is read at a bounded pace, and of forged senders only some are kept.
func TestFlood(t *testing.T) {
	inBench(t, func(b *bench) {
		b.Apply([]Watched{{Link: "eth0", Addr: vip4}})
		b.must(b.Announce("eth0", vip4))
		b.states()
		sender := mac{2, 0xff}
		for range 1000 {
			for range 10 {
				sender[4]++
				if sender[4] == 0 {
					sender[5]++
				}
				b.net.show(2, announcement(sender, vip4)[0])
			}
			b.wait(time.Millisecond)
		}
		got := b.Stats()
		if most := uint64(time.Second/paceTime+1) * paceReads; got.Heard > most || got.Heard < most/2 {
			t.Errorf("of 10,000 packets in a second %d are read, at most %d may be", got.Heard, most)
		}
		if lines := strings.Count(b.log.String(), "\n"); lines != knownOffenders {
			t.Errorf("%d lines are logged", lines)
		}
		if got := b.states(); !slices.Equal(got, []State{Taken}) {
			t.Errorf("findings %v", got)
		}
	})
}
