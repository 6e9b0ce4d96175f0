package announce_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herald-vip/herald/service/announce"
	"github.com/herald-vip/herald/testenv/must"
)

func TestReturnsWhileDraining(t *testing.T) {
	web := svc("web", nil, "10.1.0.1")
	known := []any{machine("n1", nil), addressPool("p", nil, "10.1.0.0/24"), web}
	inVirtualTime(t, announce.Config{}, known, func(n *node) {
		n.did("announce 10.1.0.1/32")
		n.DeleteService("default/web")
		n.did("mark 10.1.0.1/32")
		pass(notice / 2)
		n.set(web)
		n.did("announce 10.1.0.1/32")
		pass(time.Minute)
		n.did()
	})
}

func TestFailsWhileDraining(t *testing.T) {
	known := []any{
		machine("n1", nil), addressPool("p", nil, "10.1.0.0/24"),
		svc("web", local, "10.1.0.1"), slice("web-1", "web", "IPv4", "n1"),
	}
	inVirtualTime(t, announce.Config{}, known, func(n *node) {
		n.did("announce 10.1.0.1/32")
		n.DeletePool("p")
		n.did("mark 10.1.0.1/32")
		n.DeleteSlice("default/web-1")
		pass(notice)
		n.did("withdraw 10.1.0.1/32")
	})
}

func TestDrain(t *testing.T) {
	known := []any{machine("n1", nil), addressPool("p", nil, "10.1.0.0/24"), svc("a", nil, "10.1.0.1"), svc("b", nil, "10.1.0.2")}
	inVirtualTime(t, announce.Config{}, known, func(n *node) {
		n.did("announce 10.1.0.1/32", "announce 10.1.0.2/32")
		began := time.Now()
		must.Do(t, n.Drain("drained by hand")(n.t.Context()))
		if took := time.Since(began); took != notice {
			t.Errorf("drained in %v, want %v", took, notice)
		}
		n.did("mark 10.1.0.1/32", "mark 10.1.0.2/32", "withdraw 10.1.0.1/32", "withdraw 10.1.0.2/32")
		n.reason("default/a", "drained by hand")
		n.set(svc("c", nil, "10.1.0.3"))
		n.did()
		must.Do(t, n.Drain("again")(n.t.Context()))
		n.Undrain()
		n.did("announce 10.1.0.1/32", "announce 10.1.0.2/32", "announce 10.1.0.3/32")
		ctx, cancel := context.WithTimeout(n.t.Context(), notice/2)
		defer cancel()
		if err := n.Drain("in a hurry")(ctx); err == nil {
			t.Error("an unfinished drain reports that it is complete")
		}
		ended := make(chan error)
		go func() { ended <- n.Drain("once more")(n.t.Context()) }()
		synctest.Wait()
		n.Undrain()
		if err := <-ended; err == nil {
			t.Error("a canceled drain reports that it is complete")
		}
	})
}

func TestStop(t *testing.T) {
	known := []any{machine("n1", nil), addressPool("p", nil, "10.1.0.0/24"), svc("a", nil, "10.1.0.1")}
	inVirtualTime(t, announce.Config{}, known, func(n *node) {
		n.did("announce 10.1.0.1/32")
		must.Do(t, n.Stop())
		n.did("withdraw 10.1.0.1/32")
		n.Undrain()
		n.set(svc("b", nil, "10.1.0.2"))
		pass(time.Minute)
		n.did()
	})
}
