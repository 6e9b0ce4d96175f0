package balancer

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/herald-vip/herald/health"
)

// A plane that takes its time holds up nobody, and learns next what was new by then, and only that.
func TestNobodyWaitsForAPlane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newSite(t)
		registry := ofList("registry", "10.0.0.1:5001")
		registry.Listen = addrPorts("127.0.0.1:5000")
		x.apply(t, ofMembers("api"))
		stuck, again := make(chan struct{}), false
		x.kernel.afterEach(func() { // of the first Apply only
			if !again {
				again = true
				<-stuck
			}
		})
		x.SetMembers([]Member{master("10.0.0.1")})
		synctest.Wait()

		// In a bubble to wait for a mutex is to wait for ever.
		done := make(chan struct{})
		go func() {
			defer close(done)
			x.SetMembers([]Member{master("10.0.0.1"), master("10.0.0.2")})
			x.SetMembers([]Member{master("10.0.0.1", sickly), master("10.0.0.2")})
			x.apply(t, ofMembers("api"), registry)
			x.monitor.find("registry/10.0.0.1:5001", health.Healthy, "connected")
			if !x.serves("registry") || x.Status()[0].Backends[0].State != Dead {
				t.Errorf("what is new is not known: %+v", x.Status())
			}
		}()
		<-done
		time.Sleep(time.Hour)
		if x.kernel.tries() != 1 {
			t.Errorf("the plane was told %d times at once", x.kernel.tries())
		}
		close(stuck)
		if x.kernel.tries() != 2 {
			t.Errorf("the plane was told %d times, want once more", x.kernel.tries())
		}
		x.carries(t, "api@127.0.0.1:9443: 10.0.0.1:6443 dead 10.0.0.2:6443 serving; registry@127.0.0.1:5000: 10.0.0.1:5001 serving")
	})
}

// A reload does not wait for a plane that learns of an address that was looked up, and a Set that is closed does.
func TestReloadAndCloseWhileAPlaneIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newSite(t)
		x.resolver.answer("10.0.0.1")
		stuck := make(chan struct{})
		x.kernel.afterEach(func() { <-stuck })
		unchecked := ofName("api")
		unchecked.Check = nil
		x.apply(t, unchecked)
		synctest.Wait() // the look-up has its answer, and the plane is being told
		if x.kernel.tries() != 1 {
			t.Fatalf("the plane was told %d times", x.kernel.tries())
		}
		x.apply(t) // this would wait for ever
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
			t.Error("it was closed while a plane was being told")
		default:
		}
		close(stuck)
		<-closing
		x.carries(t, "api@127.0.0.1:9443: 10.0.0.1:6443 serving")
	})
}

// What a status says serves is what a plane has been told, if that does not take it long.
func TestStatusWaitsForAPlane(t *testing.T) {
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
			t.Error("a status did not wait")
		default:
		}
		close(stuck)
		<-said
		if waited := time.Since(began); waited != 0 {
			t.Errorf("a status came %v after the plane had been told", waited)
		}
	})
}
