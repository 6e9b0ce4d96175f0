package balancer

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/herald-vip/herald/health"
)

// A slow data plane delays no other method. Its next Apply has all changes since.
func TestNoMethodWaitsForADataPlane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newSite(t)
		registry := ofList("registry", "10.0.0.1:5001")
		registry.Listen = listen("127.0.0.1:5000")
		x.apply(t, ofMembers("api"))
		stuck, again := make(chan struct{}), false
		x.kernel.afterEach(func() { // blocks the first Apply only
			if !again {
				again = true
				<-stuck
			}
		})
		x.SetMembers([]Member{master("10.0.0.1")})
		synctest.Wait()

		// In a synctest bubble waiting for a mutex blocks for ever.
		done := make(chan struct{})
		go func() {
			defer close(done)
			x.SetMembers([]Member{master("10.0.0.1"), master("10.0.0.2")})
			x.SetMembers([]Member{master("10.0.0.1", fails), master("10.0.0.2")})
			x.apply(t, ofMembers("api"), registry)
			x.monitor.find("registry/10.0.0.1:5001", health.Healthy, "connected")
			if !x.serves("registry") || x.Status()[0].Backends[0].State != Dead {
				t.Errorf("the changes are not in the status: %+v", x.Status())
			}
		}()
		<-done
		time.Sleep(time.Hour)
		if x.kernel.tries() != 1 {
			t.Errorf("%d concurrent calls of Apply", x.kernel.tries())
		}
		close(stuck)
		if x.kernel.tries() != 2 {
			t.Errorf("Apply was called %d times, want once more", x.kernel.tries())
		}
		x.carries(t, "api@127.0.0.1:9443: 10.0.0.1:6443 dead 10.0.0.2:6443 serving; registry@127.0.0.1:5000: 10.0.0.1:5001 serving")
	})
}

// A reload does not wait for a call of a data plane, and Close does.
func TestReloadAndCloseDuringApply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newSite(t)
		x.resolver.answer("10.0.0.1")
		stuck := make(chan struct{})
		x.kernel.afterEach(func() { <-stuck })
		unchecked := ofName("api")
		unchecked.Check = nil
		x.apply(t, unchecked)
		synctest.Wait() // the look-up has ended, and Apply blocks
		if x.kernel.tries() != 1 {
			t.Fatalf("Apply was called %d times", x.kernel.tries())
		}
		x.apply(t) // must not block
		closing := make(chan struct{})
		go func() {
			defer close(closing)
			if err := x.Close(); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		select {
		case <-closing:
			t.Error("Close returned during a call of Apply")
		default:
		}
		close(stuck)
		<-closing
		x.carries(t, "api@127.0.0.1:9443: 10.0.0.1:6443 serving")
	})
}

// Status waits for a short Apply, so that the data plane has the reported states.
func TestStatusWaitsForADataPlane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newSite(t)
		x.apply(t, ofMembers("api"))
		stuck := make(chan struct{})
		x.kernel.afterEach(func() { <-stuck })
		x.SetMembers([]Member{master("10.0.0.1")})
		synctest.Wait()
		began, said := time.Now(), make(chan struct{})
		go func() {
			defer close(said)
			x.Status()
		}()
		synctest.Wait()
		select {
		case <-said:
			t.Error("Status did not wait")
		default:
		}
		close(stuck)
		<-said
		if waited := time.Since(began); waited != 0 {
			t.Errorf("Status returned %v after Apply", waited)
		}
	})
}
