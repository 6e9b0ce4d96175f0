package arp

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/netutil/link"
)

func TestAnnounce(t *testing.T) {
	inBench(t, func(b *bench) {
		b.must(b.Announce(time.Time{}, "eth0", vip4, vip6))
		for i, want := range [][]byte{announcement(self, vip4)[0], announcement(self, vip4)[1], announcement(self, vip6)[0]} {
			if sent := b.net.peek(); len(sent) != 3 || !slices.Equal(sent[i].frame, want) {
				t.Fatalf("after Announce: %d frames sent, frame %d is wrong", len(sent), i)
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
				t.Fatalf("%v announced after Withdraw", c.addr)
			}
		}
		b.Withdraw("eth0", vip6, vip4)
		b.Withdraw("eth1", vip4)
		b.wait(time.Hour)
		if sent, open := b.net.take(), b.net.open4and6(); len(sent) > 0 || open > 0 {
			t.Errorf("%d frames sent, %d wires open after Withdraw of all", len(sent), open)
		}
	})
}

func TestAnnounceRefuses(t *testing.T) {
	inBench(t, func(b *bench) {
		b.net.set(link.Link{Name: "down0", Index: 3, MAC: member.hardware()})
		b.net.set(link.Link{Name: "tun0", Index: 4, Up: true})
		for _, tt := range []struct{ link, addr, want string }{
			{"eth1", "10.0.0.99", "announce 10.0.0.99 on eth1: there is no such link"},
			{"down0", "10.0.0.99", "announce 10.0.0.99 on down0: the link is down"},
			{"tun0", "10.0.0.99", "announce 10.0.0.99 on tun0: the link has no Ethernet address"},
			{"eth0", "224.0.0.1", `announce 224.0.0.1 on eth0: "224.0.0.1" is not a global unicast address without a zone`},
			{"eth0", "fe80::1%eth0", `announce fe80::1%eth0 on eth0: "fe80::1%eth0" is not a global unicast address without a zone`},
		} {
			if err := b.Announce(time.Time{}, tt.link, netip.MustParseAddr(tt.addr)); err == nil || err.Error() != tt.want {
				t.Errorf("error %v\nwant %s", err, tt.want)
			}
		}
		b.must(b.Announce(time.Time{}, "eth0", netip.MustParseAddr("::ffff:10.0.0.99")))
		b.net.failWith(errFake)
		if err := b.Announce(time.Time{}, "eth0", vip4, vip6, vip4.Next()); err == nil || !strings.HasPrefix(err.Error(), "announce 3 addresses on eth0: ") {
			t.Errorf("error %v", err)
		}
		b.Apply([]Watched{{Link: "eth0", Addr: netip.Addr{}}, {Link: "eth0", Addr: netip.MustParseAddr("ff02::1")}})
		if got := b.Status(); len(got) != 0 {
			t.Errorf("watched: %+v, want none", got)
		}
	})
}

// After the limit nothing is announced, even if announcements are due.
func TestLimit(t *testing.T) {
	inBench(t, func(b *bench) {
		b.Apply([]Watched{{Link: "eth0", Addr: vip4}})
		b.must(b.Announce(time.Time{}, "eth0", vip4))
		b.Limit(time.Now().Add(100*time.Millisecond), "eth0", vip4, vip6)
		b.wait(110 * time.Millisecond)
		b.net.show(2, announcement(outsider, vip4)...)
		b.net.set(link.Link{Name: "eth0", Index: 2, Up: true, MAC: member.hardware()})
		b.wait(time.Hour)
		if got := b.Stats().Announced; got != 2 { // at once and after 50 ms
			t.Errorf("announced %d times, want 2", got)
		}
		for _, s := range b.net.take() {
			if c, _ := parse(s.frame); !c.probe && s.at.Sub(b.start) > 100*time.Millisecond {
				t.Errorf("announced after %v", s.at.Sub(b.start))
			}
		}
		b.must(b.Announce(time.Now(), "eth0", vip4)) // the limit has passed already
		b.wait(time.Minute)
		if got := b.sentAt(announcement(member, vip4)[0]); len(got) > 0 {
			t.Errorf("announced after the limit, at %v", got)
		}
		b.must(b.Announce(time.Time{}, "eth0", vip4)) // again, without limit
		b.wait(63 * time.Second)
		if got := len(b.sentAt(announcement(member, vip4)[0])); got != len(burst)+1 {
			t.Errorf("sent %d times, want %d", got, len(burst)+1)
		}
	})
}

func TestLinkChanges(t *testing.T) {
	with := func(change func(*link.Link)) link.Link { l := eth0; change(&l); return l }
	for name, tt := range map[string]struct {
		steps []link.Link
		src   mac
		index int
	}{
		"down and up":            {[]link.Link{with(func(l *link.Link) { l.Up = false }), eth0}, self, 2},
		"deleted and made again": {[]link.Link{{Name: "eth0"}, with(func(l *link.Link) { l.Index = 9 })}, self, 9},
		"replaced at once":       {[]link.Link{with(func(l *link.Link) { l.Index = 9 })}, self, 9},
		"MAC changed":            {[]link.Link{with(func(l *link.Link) { l.MAC = member.hardware() })}, member, 2},
		"without MAC and back":   {[]link.Link{with(func(l *link.Link) { l.MAC = nil }), eth0}, self, 2},
	} {
		t.Run(name, func(t *testing.T) {
			inBench(t, func(b *bench) {
				b.Apply([]Watched{{Link: "eth0", Addr: vip4}, {Link: "eth0", Addr: vip6, Policy: Yield}})
				b.must(b.Announce(time.Time{}, "eth0", vip4, vip6))
				b.wait(10 * time.Second)
				for i, l := range tt.steps {
					b.net.take()
					b.net.set(l)
					if b.wait(time.Second); i < len(tt.steps)-1 && len(b.net.peek()) > 0 {
						t.Errorf("%d frames sent while the link is unusable", len(b.net.peek()))
					}
				}
				b.wait(10 * time.Second)
				sent := b.net.take()
				if want := 3*len(burst) + 2; len(sent) != want { // two probes with the last announcement
					t.Errorf("%d frames sent, want %d", len(sent), want)
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
					t.Errorf("%d wires open, want 2", n)
				}
				b.net.set(link.Link{Name: "other0", Index: 20, Up: true})
				if b.wait(time.Second); len(b.net.take()) > 0 {
					t.Error("announced again because of another link")
				}
			})
		})
	}
}

// Announcements start at once when a missing link appears.
func TestLinkAppears(t *testing.T) {
	inBench(t, func(b *bench) {
		b.Apply([]Watched{{Link: "eth1", Addr: vip4, Probe: true}})
		if err := b.Announce(time.Time{}, "eth1", vip6); err == nil {
			t.Error("Announce on a missing link: no error")
		}
		b.wait(time.Hour)
		if got := b.states(); !slices.Equal(got, []State{Unknown}) {
			t.Errorf("findings %v", got)
		}
		b.net.set(link.Link{Name: "eth1", Index: 7, Up: true, MAC: member.hardware()})
		b.wait(time.Second)
		if got := b.states(); !slices.Equal(got, []State{Free}) {
			t.Errorf("findings %v", got)
		}
		if sent := b.net.take(); len(sent) != probes+5 || sent[0].at.Sub(b.start) != time.Hour {
			t.Errorf("%d frames sent, want %d at once", len(sent), probes+5)
		}
	})
}

// A wire that fails or cannot be opened is opened later.
func TestBrokenWires(t *testing.T) {
	inBench(t, func(b *bench) {
		b.net.failWith(errFake)
		b.Apply([]Watched{{Link: "eth0", Addr: vip4}})
		if err := b.Announce(time.Time{}, "eth0", vip4); err == nil || !strings.Contains(err.Error(), errFake.Error()) {
			t.Errorf("error %v", err)
		}
		b.wait(10 * time.Second)
		b.net.failWith(nil)
		b.wait(5 * time.Second)
		if got := len(b.sentAt(announcement(self, vip4)[0])); got != len(burst) {
			t.Errorf("announced %d times after the failure, want %d", got, len(burst))
		}
		if got := b.log.String(); strings.Count(got, "cannot announce or watch") != 1 || strings.Count(got, "can announce and watch") != 1 {
			t.Errorf("log:\n%s", got)
		}
		b.net.breakWires()
		b.wait(5 * time.Second)
		if got := len(b.sentAt(announcement(self, vip4)[0])); got != len(burst) || b.net.open4and6() != 1 {
			t.Errorf("announced %d times after a wire failed, want %d; %d wires open, want 1", got, len(burst), b.net.open4and6())
		}
		if b.Stats().Failed == 0 {
			t.Error("Failed is 0")
		}
	})
}
