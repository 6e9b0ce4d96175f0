package eventlog_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/herald-vip/herald/status/eventlog"
)

func TestEvents(t *testing.T) {
	l := eventlog.New(10)
	var out bytes.Buffer
	log := slog.New(l.Handler(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelError})))
	log.Info("vip announcing", "vip", "cp", "address", "10.99.0.10", "reason", "apiserver healthy", "state", "announced")
	log.Info("check warning raised", "check", "apiserver")
	log.Warn("check is unhealthy", "check", "apiserver", "state", "unhealthy")
	log.With("node", "m1").WithGroup("bgp").With("peer", "r1").Warn("session lost", "asn", 64500, "err", errors.New("hold timer expired"))
	log.Debug("probe")
	log.Error("refused", "err", "line 1\n  line 2", "reason", "bad")

	want := []eventlog.Event{
		{Level: slog.LevelError, What: "refused", Why: "line 1 line 2; bad"},
		{Level: slog.LevelWarn, What: "session lost", About: "node=m1 bgp.peer=r1 bgp.asn=64500 bgp.err=hold timer expired"},
		{Level: slog.LevelWarn, What: "check is unhealthy", About: "check=apiserver", Of: "check apiserver", State: "unhealthy"},
		{Level: slog.LevelInfo, What: "check warning raised", About: "check=apiserver"},
		{Level: slog.LevelInfo, What: "vip announcing", About: "vip=cp address=10.99.0.10", Why: "apiserver healthy", Of: "vip cp 10.99.0.10", State: "announced"},
	}
	got := l.Events()
	if len(got) != len(want) {
		t.Fatalf("%d events: %+v", len(got), got)
	}
	for i, e := range got {
		if e.At.IsZero() {
			t.Errorf("event %d has no time", i)
		}
		e.At = want[i].At
		if e != want[i] {
			t.Errorf("event %d:\n got %+v\nwant %+v", i, e, want[i])
		}
	}
	if s := out.String(); strings.Count(s, "\n") != 1 || !strings.Contains(s, "msg=refused") {
		t.Errorf("the next handler, which wants errors alone, was given %q", s)
	}
}

// The next handler gets records below info if it wants them; they are no events.
func TestNextDecidesForItself(t *testing.T) {
	l := eventlog.New(10)
	var out bytes.Buffer
	log := slog.New(l.Handler(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	log.Debug("probe")
	if len(l.Events()) != 0 || !strings.Contains(out.String(), "msg=probe") {
		t.Errorf("events %+v, log %q", l.Events(), &out)
	}
}

func TestBounds(t *testing.T) {
	l := eventlog.New(3)
	log := slog.New(l.Handler(slog.DiscardHandler))
	for i := range 10 {
		log.Info(fmt.Sprint("event ", i), "reason", strings.Repeat("é", 5000))
	}
	got := l.Events()
	if len(got) != 3 || got[0].What != "event 9" || got[2].What != "event 7" {
		t.Fatalf("%d events, %q to %q", len(got), got[0].What, got[len(got)-1].What)
	}
	if why := got[0].Why; utf8.RuneCountInString(why) != 1000 || !utf8.ValidString(why) || !strings.HasSuffix(why, "é…") {
		t.Errorf("a reason of %d bytes: %q", len(why), why)
	}
}

func TestConcurrentUse(t *testing.T) {
	l := eventlog.New(8)
	log := slog.New(l.Handler(slog.NewTextHandler(io.Discard, nil)))
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for range 100 {
				log.Info("something")
				if n := len(l.Events()); n < 1 || n > 8 {
					t.Errorf("%d events", n)
				}
			}
		})
	}
	wait.Wait()
}

func BenchmarkHandle(b *testing.B) {
	log := slog.New(eventlog.New(100).Handler(slog.DiscardHandler))
	for b.Loop() {
		log.Info("vip withdrawn", "vip", "cp", "address", "10.99.0.10", "reason", "apiserver: connection refused")
	}
}
