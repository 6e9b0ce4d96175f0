package transport

import (
	"fmt"
	"log"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herald-vip/herald/testenv/recorder"
)

func TestLogFilterLogsAWrongKeyOnce(t *testing.T) {
	for name, line := range map[string]string{
		"packet":           "[ERR] memberlist: Decrypt packet failed: no installed keys could decrypt the message from=10.0.0.2:7946",
		"connection":       "[ERR] memberlist: failed to receive: no installed keys could decrypt the message from=10.0.0.2:41234",
		"no key there":     "[ERR] memberlist: failed to receive: encryption is configured but remote state is not encrypted from=10.0.0.2:41234",
		"no key here":      "[ERR] memberlist: failed to receive: remote state is encrypted and encryption is not configured from=10.0.0.2:41234",
		"read as plain":    "[ERR] memberlist: Failed to decode indirect ping request: EOF from=10.0.0.2:7946",
		"answer":           "[ERR] memberlist: Push/Pull with m2 failed: encryption is configured but remote state is not encrypted",
		"of no known kind": "[ERR] memberlist: msg type (77) not supported from=10.0.0.2:7946",
	} {
		t.Run(name, func(t *testing.T) {
			var out recorder.Log
			a := NewAdmission(out.Logger(), false)
			a.Replace(trio(), "m1")
			logger := log.New(NewLogFilter(out.Logger(), a), "", 0)
			for range 1000 {
				logger.Print(line)
			}
			if out.Count("member=m2") != 1 || out.Count("\n") != 1 || a.Unreadable.Load() != 1000 {
				t.Fatalf("counted %d:\n%v", a.Unreadable.Load(), &out)
			}
		})
	}
}

func TestLogFilterRepeatsItselfRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out recorder.Log
		a := NewAdmission(out.Logger(), false)
		a.Replace(trio(), "m1")
		logger := log.New(NewLogFilter(out.Logger(), a), "", 0)
		for i := range 1000 {
			logger.Printf("[ERR] memberlist: Failed to send UDP ping: write udp: %d: network is unreachable", i)
			logger.Print("[DEBUG] memberlist: Stream connection from=10.0.0.2:41234")
			logger.Print("[INFO] memberlist: Suspect m2 has failed, no acks received")
			logger.Print("[WARN] memberlist: ignoring alive message for 'm9': it is no member")
		}
		if out.Count("\n") != 1 || out.Count("network is unreachable") != 1 {
			t.Fatal(out.String())
		}
		time.Sleep(quiet)
		logger.Print("[ERR] memberlist: Failed to send UDP ping: write udp: network is unreachable")
		if out.Count("\n") != 2 || out.Count("omitted=999") != 1 {
			t.Fatal(out.String())
		}
	})
}

// TestLogFilterMarksMemberlist checks that log lines distinguish Herald's messages from memberlist's, and that both are
// rate-limited.
func TestLogFilterMarksMemberlist(t *testing.T) {
	var out recorder.Log
	f := NewLogFilter(out.Logger(), NewAdmission(out.Logger(), false))
	for i := range 3 {
		fmt.Fprintln(f, "[ERR] memberlist: Failed to send UDP ping: network is unreachable")
		f.Warn(fmt.Sprintf("cannot send advertisements: packet %d: network is unreachable", i))
	}
	for _, want := range []string{`msg="memberlist: Failed to send UDP ping: network is unreachable"`, `level=WARN msg="cannot send advertisements: packet 0: network is unreachable"`} {
		if out.Count(want) != 1 || out.Count("\n") != 2 {
			t.Errorf("want %s, once:\n%v", want, &out)
		}
	}
}

func TestLogFilterStaysSmall(t *testing.T) {
	var out recorder.Log
	a := NewAdmission(out.Logger(), false)
	a.Replace(trio(), "m1")
	f := NewLogFilter(out.Logger(), a)
	for i := range 10000 {
		fmt.Fprintf(f, "[WARN] memberlist: %c%c%c\n", 'a'+i%26, 'a'+i/26%26, 'a'+i/676%26)
	}
	if len(f.said) > maxComplaints {
		t.Fatalf("%d kinds remembered", len(f.said))
	}
	if n := out.Count("\n"); n > maxComplaints {
		t.Fatalf("%d lines", n)
	}
}

func FuzzLogFilter(f *testing.F) {
	f.Add("[ERR] memberlist: Decrypt packet failed: x from=10.0.0.2:7946")
	f.Add("from=")
	f.Add("[")
	f.Fuzz(func(t *testing.T, line string) {
		var out recorder.Log
		a := NewAdmission(out.Logger(), false)
		a.Replace(trio(), "m1")
		if n, err := NewLogFilter(out.Logger(), a).Write([]byte(line)); n != len(line) || err != nil {
			t.Fatal(n, err)
		}
	})
}
