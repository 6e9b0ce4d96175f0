package arp

import (
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herald-vip/herald/netutil/link"
)

func TestProbe(t *testing.T) {
	for _, addr := range []netip.Addr{vip4, vip6} {
		inBench(t, func(b *bench) {
			b.Members([]net.HardwareAddr{member.hardware(), {1, 2, 3}})
			b.Apply([]Watched{{Link: "eth0", Addr: addr, Probe: true}})
			b.wait(150 * time.Millisecond)
			b.net.show(2, announcement(member, addr)...) // a member's answer
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

// Announcing ends probing: this node would probe for its own address.
func TestAnnounceEndsProbe(t *testing.T) {
	inBench(t, func(b *bench) {
		b.Apply([]Watched{{Link: "eth0", Addr: vip4, Probe: true}})
		synctest.Wait()
		b.must(b.Announce(time.Time{}, "eth0", vip4))
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
			b.must(b.Announce(time.Time{}, "eth0", vip4, vip6))
			b.wait(10 * time.Second)
			b.net.take()
			b.states()
			at := time.Since(b.start)
			for range 20 { // within 2 s
				b.net.show(2, announcement(outsider, vip4)...)
				b.net.show(2, probe(outsider, vip6)) // no conflict
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
			if got := b.Stats(); got.Conflicts != 40 || got.Received != 60 || got.Defended != uint64(len(want)) {
				t.Errorf("%v: stats %+v", policy, got)
			}
			b.net.show(2, announcement(mac{2, 0, 0, 0, 0, 0xef}, vip4)...)
			b.wait(quiet)
			if got := b.states(); !slices.Equal(got, []State{Free}) {
				t.Errorf("%v: findings %v", policy, got)
			}
			log := b.log.String()
			for _, line := range []string{"\"a host that is not a member uses a VIP", "another host that is not a member", "only members use the VIP again",
				"mac=02:00:00:00:00:ee", "mac=02:00:00:00:00:ef"} {
				if strings.Count(log, line) != 1 {
					t.Errorf("%v: the log has %q %d times, want once:\n%s", policy, line, strings.Count(log, line), log)
				}
			}
		})
	}
}

// A member that announces an address that this node announces is outdated, or this node is. Neighbours may believe
// the member, so this node announces again, after a grace to learn that it lost the address.
func TestMemberClaims(t *testing.T) {
	inBench(t, func(b *bench) {
		b.Members([]net.HardwareAddr{member.hardware()})
		b.Apply([]Watched{{Link: "eth0", Addr: vip4, Policy: Yield}})
		b.must(b.Announce(time.Time{}, "eth0", vip4))
		b.wait(10 * time.Second)
		b.net.take()
		at := time.Since(b.start)
		b.net.show(2, announcement(member, vip4)...)
		b.wait(10 * time.Second)
		if got := b.sentAt(announcement(self, vip4)[0]); !slices.Equal(got, []time.Duration{at + memberGrace}) {
			t.Errorf("announced at %v, want %v", got, at+memberGrace)
		}
		b.net.show(2, announcement(member, vip4)...)
		b.wait(memberGrace / 2)
		b.Withdraw("eth0", vip4)
		b.wait(time.Minute)
		if got := b.net.take(); len(got) > 0 {
			t.Errorf("%d frames sent after Withdraw", len(got))
		}
		if got := b.states(); !slices.Equal(got, []State{Free}) {
			t.Errorf("findings %v", got)
		}
	})
}

// A member that claims an address again after a contradiction holds it too. A member that was stopped
// claims it only once.
func TestTwoMembersHold(t *testing.T) {
	for _, addr := range []netip.Addr{vip4, vip6} {
		inBench(t, func(b *bench) {
			b.Members([]net.HardwareAddr{member.hardware()})
			b.Apply([]Watched{{Link: "eth0", Addr: addr}})
			b.must(b.Announce(time.Time{}, "eth0", addr))
			rival := func() string { return b.Status()[0].Rival.String() }
			claim := func() {
				b.net.show(2, announcement(member, addr)...)
				synctest.Wait()
			}
			b.wait(10 * time.Second)
			claim() // both at once, as after the member was stopped
			claim()
			b.wait(memberGrace + rivalry + time.Second)
			claim()
			b.wait(2 * memberGrace)
			if got := rival(); got != "" || strings.Contains(b.log.String(), "TWO MEMBERS") {
				t.Errorf("%v: rival %q after late claims, want none", addr, got)
			}
			claim()
			b.wait(2 * time.Second)
			claim()
			if got := rival(); got != member.hardware().String() || strings.Count(b.log.String(), "TWO MEMBERS") != 1 {
				t.Errorf("%v: rival %q after repeated claims, want the member, logged once:\n%s", addr, got, b.log)
			}
			b.wait(quiet)
			if got := rival(); got != "" {
				t.Errorf("%v: rival %q after a minute without claims, want none", addr, got)
			}
			claim()
			b.wait(2 * memberGrace)
			b.Withdraw("eth0", addr)
			claim()
			b.must(b.Announce(time.Time{}, "eth0", addr))
			claim()
			if got := rival(); got != "" {
				t.Errorf("%v: rival %q after a claim of the previous holder, want none", addr, got)
			}
		})
	}
}

// A host that becomes known as a member or as this node is no offender.
func TestMemberIsLearnt(t *testing.T) {
	inBench(t, func(b *bench) {
		b.Apply([]Watched{{Link: "eth0", Addr: vip4}, {Link: "eth0", Addr: vip6}})
		b.net.show(2, announcement(member, vip4)...)
		b.net.show(2, announcement(outsider, vip6)...)
		if got := b.states(); !slices.Equal(got, []State{Free, Free, Taken, Taken}) {
			t.Errorf("findings %v", got)
		}
		b.Members([]net.HardwareAddr{member.hardware()})
		b.net.set(link.Link{Name: "eth1", Index: 3, Up: true, MAC: outsider.hardware()})
		if got := b.states(); !slices.Equal(got, []State{Free, Free}) {
			t.Errorf("findings %v", got)
		}
	})
}

// A flood is read at a bounded pace, and only some forged senders are kept.
func TestFlood(t *testing.T) {
	inBench(t, func(b *bench) {
		b.Apply([]Watched{{Link: "eth0", Addr: vip4}})
		b.must(b.Announce(time.Time{}, "eth0", vip4))
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
		if most := uint64(time.Second/paceTime+1) * paceReads; got.Received > most || got.Received < most/2 {
			t.Errorf("%d of 10,000 packets read in a second, want at most %d", got.Received, most)
		}
		if lines := strings.Count(b.log.String(), "\n"); lines != knownOffenders {
			t.Errorf("%d log lines, want %d", lines, knownOffenders)
		}
		if got := b.states(); !slices.Equal(got, []State{Taken}) {
			t.Errorf("findings %v", got)
		}
	})
}

// A slow observer does not delay announcements.
func TestSlowObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &fakeNetwork{links: map[string]link.Link{"eth0": eth0}}
		observed := make(chan struct{})
		a := newAnnouncer(slog.New(slog.DiscardHandler), Options{Observe: func(Finding) { <-observed }}, n)
		runs(t, a)
		a.Apply([]Watched{{Link: "eth0", Addr: vip4}})
		synctest.Wait()
		if err := a.Announce(time.Time{}, "eth0", vip4); err != nil {
			t.Error(err)
		}
		time.Sleep(5 * time.Second)
		if got := a.Stats().Announced; got != uint64(len(burst)) {
			t.Errorf("announced %d times, want %d", got, len(burst))
		}
		close(observed)
	})
}

// An announced address is probed with the last announcement of the burst and each later one, but not when
// a claim is contradicted. The probe finds hosts that only answer requests.
func TestPatrol(t *testing.T) {
	for _, addr := range []netip.Addr{vip4, vip6} {
		inBench(t, func(b *bench) {
			b.Members([]net.HardwareAddr{member.hardware()})
			b.Apply([]Watched{{Link: "eth0", Addr: addr}})
			b.wait(time.Hour)
			if sent := b.net.take(); len(sent) > 0 {
				t.Errorf("%v: %d frames sent before Announce, want none", addr, len(sent))
			}
			b.must(b.Announce(time.Time{}, "eth0", addr))
			b.Limit(time.Now().Add(2*time.Minute), "eth0", addr)
			at := time.Since(b.start)
			b.wait(5 * time.Second)
			b.net.show(2, announcement(member, addr)...) // a late answer of the previous holder
			b.wait(5 * time.Minute)
			if got, want := b.sentAt(probe(self, addr)), []time.Duration{at + 3*time.Second, at + 63*time.Second}; !slices.Equal(got, want) {
				t.Errorf("%v: probes at %v, want %v", addr, got, want)
			}
			if got := b.states(); !slices.Equal(got, []State{Free}) {
				t.Errorf("%v: findings %v", addr, got)
			}
		})
	}
}
