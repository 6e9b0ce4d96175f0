package election

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// book is a log to look into.
type book struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *book) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(line)
}

// count is how many lines have this in them.
func (b *book) count(what string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for line := range strings.Lines(b.b.String()) {
		if strings.Contains(line, what) {
			n++
		}
	}
	return n
}

func (b *book) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func (b *book) logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

func ap(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

func trio() map[string]netip.AddrPort {
	return map[string]netip.AddrPort{"m1": ap("10.0.0.1:7946"), "m2": ap("10.0.0.2:7946"), "m3": ap("10.0.0.3:7946")}
}

func TestGateLetsOtherMembersIn(t *testing.T) {
	var log book
	g := &gate{log: log.logger()}
	g.admit(trio(), "m1")
	for from, want := range map[string]bool{
		"10.0.0.2:7946": true, "10.0.0.3:7946": true,
		"10.0.0.1:7946": false, "10.0.0.2:7947": false, "10.0.0.4:7946": false, "[fd00::1]:7946": false,
	} {
		if got := g.packet(ap(from)); got != want {
			t.Errorf("packet from %s: %v", from, got)
		}
	}
	member, known := g.stream(ap("10.0.0.2:1").Addr())
	own, _ := g.stream(ap("10.0.0.1:1").Addr())
	if !member || !known || own {
		t.Error("a connection may come from any port of another member's address, and from there only")
	}
	if n := g.unknown.Load(); n != 5 {
		t.Errorf("counted %d", n)
	}
	g.admit(map[string]netip.AddrPort{"m1": ap("10.0.0.1:7946"), "m4": ap("10.0.0.4:7946")}, "m1")
	if g.packet(ap("10.0.0.2:7946")) || !g.packet(ap("10.0.0.4:7946")) {
		t.Error("the change of the members changed nothing")
	}
}

func TestGateNamesOnceAndNotForever(t *testing.T) {
	var log book
	g := &gate{log: log.logger()}
	g.admit(trio(), "m1")
	for range 100 {
		g.packet(ap("10.9.9.9:1"))
		g.locked(ap("10.0.0.2:1").Addr())
		g.impostor("m9", ap("10.0.0.2:7946"), fmt.Errorf("no member"))
	}
	if log.count("source=10.9.9.9") != 1 || log.count("member=m2") != 1 || log.count("node=m9") != 1 {
		t.Fatalf("not named once each:\n%v", &log)
	}
	from := ap("10.0.0.2:1").Addr()
	if !g.mute(from) {
		t.Error("who cannot be read is not known")
	}
	g.heard(from)
	if g.locked(from); log.count("member=m2") != 2 {
		t.Error("not named again after it was understood")
	}
	for i := range 1000 {
		g.packet(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 8, byte(i >> 8), byte(i)}), 7946))
	}
	if n := log.count("no member has"); n != maxNamed {
		t.Fatalf("named %d strangers", n)
	}
	if n := log.count("further sources"); n != 1 {
		t.Fatalf("said %d times that there are more", n)
	}
	if g.unknown.Load() != 1100 || g.unreadable.Load() != 101 || g.refused.Load() != 100 {
		t.Fatal("miscounted", g.unknown.Load(), g.unreadable.Load(), g.refused.Load())
	}
	g.forget()
	g.packet(ap("10.9.9.9:1"))
	if log.count("source=10.9.9.9") != 2 {
		t.Fatal("not named again after a change")
	}
}

func TestGateBoundsWhatStrangersCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log book
		g := &gate{log: log.logger(), open: true}
		g.admit(trio(), "m1")
		from := ap("10.9.9.9:1").Addr()
		looked := func(times int) (n int) {
			for range times {
				if ok, known := g.stream(from); ok && !known {
					n++
				}
			}
			return n
		}
		if n := looked(1000); n != knocks {
			t.Errorf("%d connections of strangers at once, want %d", n, knocks)
		}
		if ok, known := g.stream(ap("10.0.0.2:1").Addr()); !ok || !known {
			t.Error("a member has to wait for strangers")
		}
		time.Sleep(time.Second / 2)
		if n := looked(1000); n != knocks/2 {
			t.Errorf("%d more in half a second, want %d", n, knocks/2)
		}
		if g.packet(ap("10.9.9.9:1")) {
			t.Error("a packet of a stranger is looked at")
		}
		g.let("w1", ap("10.9.9.9:1"))
		if !g.packet(ap("10.9.9.9:1")) || g.packet(ap("10.9.9.9:2")) || looked(1000) != 0 {
			t.Error("who has joined is still a stranger")
		}
		if log.count("level=WARN") > 0 || log.count("source=10.9.9.9") != 1 {
			t.Errorf("it says:\n%v", &log)
		}
	})
}
