package daemon_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/speaker"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/wait"
)

func TestDrainByHand(t *testing.T) {
	n := newNode(t)
	n.announcing()
	c := admin.NewClient(filepath.Join(n.dir, "herald.sock"))
	must.Do(t, c.Drain(t.Context(), "kernel upgrade", false, 0, 0))
	n.wantVIPs()
	if s, err := n.status(); err != nil || s.Draining != "kernel upgrade" || s.VIPs[0].Reason != "kernel upgrade" {
		t.Errorf("status %+v, %v", s, err)
	}
	must.Do(t, c.Undrain(t.Context()))
	n.awaitVIPs(both()...)
}

// A drain prints its result and the event that ends it; a second one says that there is nothing to do.
func TestDrainSaysWhatItDid(t *testing.T) {
	n := newNode(t)
	h := n.announcing()
	const drained = `control-plane +10\.99\.0\.10 +lo +%s +withdrawn\ncontrol-plane +fd00:99::10 +lo +%s +withdrawn\n` +
		`drained until undrain or a restart, since [0-9TZ:-]+: kernel upgrade\n`
	n.wantHerald(0, `VIP +ADDRESS +LINK +WAS +IS\n`+strings.ReplaceAll(drained, "%s", "announced to 0 of 1 peers"), "drain", "--reason", "kernel upgrade")
	n.wantHerald(0, `drained already, until undrain or a restart, since [0-9TZ:-]+: kernel upgrade\n`, "drain", "--reason", "again")
	h.signal(t, syscall.SIGTERM)
	h.wait(t)
	n.announcing()
}

// After a timeout the error lists the remaining addresses.
func TestDrainTakesLong(t *testing.T) {
	n := newNode(t)
	n.write(strings.Replace(config, "linger: 100ms", "linger: 5m", 1))
	n.announcing()
	n.wantHerald(1, `VIP .*herald: the drain goes on, and has left after 1ms: control-plane 10\.99\.0\.10, control-plane fd00:99::10\n`, "drain", "--timeout", "1ms")
	n.awaitStatus("it lingers", func(s admin.Status) bool {
		return s.VIPs[0].Stage == speaker.Lingering && s.VIPs[1].Stage == speaker.Lingering
	})
	n.wantHerald(1, `VIP .*lingering +lingering\n.*herald: the drain goes on, and has left after 1s: control-plane 10\.99\.0\.10, control-plane fd00:99::10\n`, "drain", "--timeout", "1s")
}

// A drain and an undrain at once end as the one or as the other.
func TestDrainAndUndrainAtOnce(t *testing.T) {
	n := newNode(t)
	n.apiserver.Store(http.StatusInternalServerError) // there is nothing to wait for
	n.start()
	wait.Until(t, "it answers", func() bool { _, err := n.status(); return err == nil })
	c := admin.NewClient(filepath.Join(n.dir, "herald.sock"))
	for range 300 {
		var both sync.WaitGroup
		both.Go(func() { _ = c.Drain(t.Context(), "kernel upgrade", true, 0, 0) }) // the other may end it
		both.Go(func() {
			if err := c.Undrain(t.Context()); err != nil {
				t.Error(err)
			}
		})
		both.Wait()
		s := must.Get[admin.Status](t)(n.status())
		if drained := s.Draining != ""; drained == s.DrainingSince.IsZero() || drained != s.UntilUndrain {
			t.Fatalf("drained %q since %v, until undrain %t", s.Draining, s.DrainingSince, s.UntilUndrain)
		}
	}
}

// A drain until undrain outlasts restarts, and says so.
func TestDrainUntilUndrain(t *testing.T) {
	n := newNode(t)
	again := func(h *herald) *herald {
		h.signal(t, syscall.SIGTERM)
		h.wait(t)
		return n.start()
	}
	h := n.announcing()
	n.wantHerald(0, `.*drained until undrain or a restart, .*`, "drain", "--reason", "kernel upgrade")
	n.wantHerald(0, `drained already, until undrain, since .*: kernel upgrade\n`, "drain", "--until-undrain")
	n.wantHerald(0, `drained already, until undrain, since .*: kernel upgrade\n`, "drain")
	before := must.Get[admin.Status](t)(n.status())
	h = again(h)
	n.awaitStatus("it is drained again", func(s admin.Status) bool {
		return s.Checks[0].State == health.Healthy && s.Draining == "kernel upgrade" && s.DrainingSince.Equal(before.DrainingSince) && s.UntilUndrain
	})
	n.wantHerald(0, `.*\nDRAINING: kernel upgrade \(until undrain, since .*`, "status")
	if got := n.vips(); len(got) != 0 || strings.Contains(h.log.String(), "vip announcing") {
		t.Errorf("drained, and bound: %q", got)
	}
	n.wantHerald(0, "", "undrain")
	n.awaitVIPs(both()...)
	h = again(h)
	n.awaitVIPs(both()...)

	// What cannot be remembered is not begun, what cannot be read counts as a drain.
	state := filepath.Join(n.dir, "state")
	remove(t, state)
	n.writeFile(state, "in the way")
	n.wantHerald(1, "herald: .*: a drain until undrain cannot be remembered, so it does not begin: .*", "drain", "--until-undrain")
	n.wantVIPs(both()...)
	remove(t, state)
	must.Do(t, os.Mkdir(state, 0o700))
	for _, put := range []func(file string) error{
		func(file string) error { n.writeFile(file, "{"); return nil },
		func(file string) error { return os.Mkdir(file, 0o700) }, // nor can it be written
	} {
		must.Do(t, put(filepath.Join(state, "drained")))
		h = again(h)
		n.awaitStatus("it is drained", func(s admin.Status) bool {
			return s.Checks[0].State == health.Healthy && strings.HasPrefix(s.Draining, state+"/drained cannot be read, which counts as a drain: ")
		})
		n.wantHerald(0, "", "undrain")
		n.awaitVIPs(both()...)
		if _, err := os.Stat(state + "/drained"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the file is still there: %v", err)
		}
	}
}
