package transport

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herald-vip/herald/testenv/recorder"
)

func ap(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

func trio() map[string]netip.AddrPort {
	return map[string]netip.AddrPort{"m1": ap("10.0.0.1:7946"), "m2": ap("10.0.0.2:7946"), "m3": ap("10.0.0.3:7946")}
}

func TestAdmitsOtherMembers(t *testing.T) {
	var log recorder.Log
	a := NewAdmission(log.Logger(), false)
	a.Replace(trio(), "m1")
	for from, want := range map[string]bool{
		"10.0.0.2:7946": true, "10.0.0.3:7946": true,
		"10.0.0.1:7946": false, "10.0.0.2:7947": false, "10.0.0.4:7946": false, "[fd00::1]:7946": false,
	} {
		if got := a.AdmitPacket(ap(from)); got != want {
			t.Errorf("packet from %s: %v", from, got)
		}
	}
	member, known := a.admitStream(ap("10.0.0.2:1").Addr())
	own, _ := a.admitStream(ap("10.0.0.1:1").Addr())
	if !member || !known || own {
		t.Error("connections are not admitted exactly from other members' addresses")
	}
	if n := a.Unknown.Load(); n != 5 {
		t.Errorf("counted %d", n)
	}
	a.Replace(map[string]netip.AddrPort{"m1": ap("10.0.0.1:7946"), "m4": ap("10.0.0.4:7946")}, "m1")
	if a.AdmitPacket(ap("10.0.0.2:7946")) || !a.AdmitPacket(ap("10.0.0.4:7946")) {
		t.Error("the change of the members changed nothing")
	}
}

func TestLogsSourcesOnce(t *testing.T) {
	var log recorder.Log
	a := NewAdmission(log.Logger(), false)
	a.Replace(trio(), "m1")
	for range 100 {
		a.AdmitPacket(ap("10.9.9.9:1"))
		a.countUnreadable(ap("10.0.0.2:1").Addr())
		a.CountRefused("m9", ap("10.0.0.2:7946"), fmt.Errorf("no member"))
	}
	if log.Count("source=10.9.9.9") != 1 || log.Count("member=m2") != 1 || log.Count("node=m9") != 1 {
		t.Fatalf("not named once each:\n%v", &log)
	}
	from := ap("10.0.0.2:1").Addr()
	if !a.IsUnreadable(from) {
		t.Error("an unreadable source is not recorded")
	}
	a.NoteReadable(from)
	if a.countUnreadable(from); log.Count("member=m2") != 2 {
		t.Error("not logged again after a readable message")
	}
	for i := range 1000 {
		a.AdmitPacket(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 8, byte(i >> 8), byte(i)}), 7946))
	}
	if n := log.Count("from an unknown address"); n != maxNamed {
		t.Fatalf("logged %d unknown sources", n)
	}
	if n := log.Count("further unknown sources"); n != 1 {
		t.Fatalf("logged %d times that there are more", n)
	}
	if a.Unknown.Load() != 1100 || a.Unreadable.Load() != 101 || a.Refused.Load() != 100 {
		t.Fatal("miscounted", a.Unknown.Load(), a.Unreadable.Load(), a.Refused.Load())
	}
	a.ForgetNamed()
	a.AdmitPacket(ap("10.9.9.9:1"))
	if log.Count("source=10.9.9.9") != 2 {
		t.Fatal("not logged again after a change")
	}
}

func TestLimitsUnknownConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log recorder.Log
		a := NewAdmission(log.Logger(), true)
		a.Replace(trio(), "m1")
		from := ap("10.9.9.9:1").Addr()
		looked := func(times int) (n int) {
			for range times {
				if ok, known := a.admitStream(from); ok && !known {
					n++
				}
			}
			return n
		}
		if n := looked(1000); n != unknownPerSecond {
			t.Errorf("%d connections from unknown addresses at once, want %d", n, unknownPerSecond)
		}
		if ok, known := a.admitStream(ap("10.0.0.2:1").Addr()); !ok || !known {
			t.Error("unknown sources delay a member")
		}
		time.Sleep(time.Second / 2)
		if n := looked(1000); n != unknownPerSecond/2 {
			t.Errorf("%d more in half a second, want %d", n, unknownPerSecond/2)
		}
		if a.AdmitPacket(ap("10.9.9.9:1")) {
			t.Error("a packet from an unknown address is admitted")
		}
		a.Add("w1", ap("10.9.9.9:1"))
		if !a.AdmitPacket(ap("10.9.9.9:1")) || a.AdmitPacket(ap("10.9.9.9:2")) || looked(1000) != 0 {
			t.Error("a joined member is still unknown")
		}
		if log.Count("level=WARN") > 0 || log.Count("source=10.9.9.9") != 1 {
			t.Errorf("log:\n%v", &log)
		}
	})
}
