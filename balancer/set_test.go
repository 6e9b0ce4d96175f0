package balancer

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/health"
)

func ofMembers(name string) Config {
	return Config{
		Name: name, Listen: listen("127.0.0.1:9443"), Mode: Kernel, Forget: 4 * time.Hour,
		Backends: Backends{Members: &Members{Port: 6443, Checks: []string{"apiserver"}}},
	}
}

func ofList(name string, static ...string) Config {
	return Config{
		Name: name, Listen: listen("127.0.0.1:9443"), Mode: Kernel, Forget: 4 * time.Hour,
		Backends: Backends{Static: &Static{Addresses: addrPorts(static...)}},
		Check:    &Probe{TCP: &health.TCP{Address: "backend:6443"}, Pace: health.Pace{Interval: s, Timeout: s, Rise: 1, Fall: 1}},
	}
}

func ofName(name string) Config {
	c := ofList(name)
	c.Backends = Backends{DNS: &DNS{Name: "masters.example", Port: 6443, Interval: 30 * s}}
	return c
}

// master returns a member with a healthy apiserver.
func master(addr string, change ...func(*Member)) Member {
	m := Member{Name: "m" + addr[len(addr)-1:], Addr: netip.MustParseAddr(addr), Checks: map[string]bool{"apiserver": true}}
	for _, c := range change {
		c(&m)
	}
	return m
}

func fails(m *Member)    { m.Checks = map[string]bool{"apiserver": false} }
func timesOut(m *Member) { m.TimedOut = true }
func drains(m *Member)   { m.Draining = true }

func TestMembersReachTheDataPlaneAtOnce(t *testing.T) {
	onSite(t, func(t *testing.T, x *site) {
		x.apply(t, ofMembers("api"))
		worker := Member{Name: "w1", Addr: netip.MustParseAddr("10.0.0.9"), Checks: map[string]bool{"kubelet": true}}
		for _, step := range []struct {
			members []Member
			want    string
		}{
			{[]Member{master("10.0.0.1"), worker}, "10.0.0.1:6443 serving"},
			{[]Member{master("10.0.0.1"), {Name: "m9", Checks: map[string]bool{"apiserver": true}}}, "10.0.0.1:6443 serving"},
			{[]Member{master("10.0.0.1"), master("10.0.0.2"), worker}, "10.0.0.1:6443 serving 10.0.0.2:6443 serving"},
			{[]Member{master("10.0.0.1", fails), master("10.0.0.2"), worker}, "10.0.0.1:6443 dead 10.0.0.2:6443 serving"},
			{[]Member{master("10.0.0.1", drains), master("10.0.0.2"), worker}, "10.0.0.1:6443 draining 10.0.0.2:6443 serving"},
			{[]Member{master("10.0.0.1"), master("10.0.0.2", timesOut)}, "10.0.0.1:6443 serving 10.0.0.2:6443 draining"},
			{[]Member{master("10.0.0.1")}, "10.0.0.1:6443 serving 10.0.0.2:6443 draining"},
		} {
			x.SetMembers(step.members) // without passing time
			x.carries(t, "api@127.0.0.1:9443: "+step.want)
		}
		applies := x.kernel.tries()
		x.SetMembers([]Member{master("10.0.0.1")})
		if x.kernel.tries() != applies {
			t.Error("Apply was called without a change")
		}
		time.Sleep(4*time.Hour + s)
		x.carries(t, "api@127.0.0.1:9443: 10.0.0.1:6443 serving")
	})
}

func TestKernelIsUnchangedUntilBackendsAreKnown(t *testing.T) {
	onSite(t, func(t *testing.T, x *site) {
		other := ofList("registry", "10.0.0.1:5001")
		other.Listen = listen("127.0.0.1:5000")
		x.apply(t, ofMembers("api"), other)
		x.monitor.find("registry/10.0.0.1:5001", health.Healthy, "connected")
		x.SetMembers([]Member{master("10.0.0.1", fails)})
		if x.kernel.tries() != 0 {
			t.Errorf("kernel services %q before a backend of api serves", x.kernel)
		}
		x.SetMembers([]Member{master("10.0.0.1")})
		x.carries(t, "api@127.0.0.1:9443: 10.0.0.1:6443 serving; registry@127.0.0.1:5000: 10.0.0.1:5001 serving")
	})
}

// A predecessor's proxy does not outlive its process, so the new proxy need not wait.
func TestProxiesStartAtOnce(t *testing.T) {
	onSite(t, func(t *testing.T, x *site) {
		files := ofList("files", "10.0.0.9:80", "10.0.0.8:80")
		files.Mode, files.Listen = Proxy, listen("127.0.0.1:80")
		x.apply(t, ofMembers("api"), files)
		x.monitor.find("files/10.0.0.9:80", health.Healthy, "connected")
		synctest.Wait()
		if got, want := x.proxy.String(), "files@127.0.0.1:80: 10.0.0.8:80 draining 10.0.0.9:80 serving"; got != want {
			t.Errorf("proxy services %q, want %q", got, want)
		}
		if x.kernel.tries() != 0 {
			t.Errorf("kernel services %q before a backend of api serves", x.kernel)
		}
		x.SetMembers([]Member{master("10.0.0.1")})
		x.carries(t, "api@127.0.0.1:9443: 10.0.0.1:6443 serving")
	})
}

func TestKernelIsChangedAfterADeadline(t *testing.T) {
	onSite(t, func(t *testing.T, x *site) {
		x.apply(t, ofList("api", "10.0.0.1:6443"))
		time.Sleep(undisturbed - 1)
		if x.kernel.tries() != 0 {
			t.Errorf("kernel services %q too early", x.kernel)
		}
		time.Sleep(time.Nanosecond)
		x.carries(t, "api@127.0.0.1:9443: 10.0.0.1:6443 draining")
	})
}

// A Herald that receives nothing from any member after its start keeps its predecessor's services.
func TestKernelIsUnchangedWhileNoBackendIsKnown(t *testing.T) {
	onSite(t, func(t *testing.T, x *site) {
		x.apply(t, ofMembers("api"))
		x.SetMembers(nil)
		time.Sleep(time.Hour)
		if x.kernel.tries() != 0 {
			t.Errorf("kernel services %q though no backend is known", x.kernel)
		}
		x.SetMembers([]Member{master("10.0.0.1", fails)})
		x.carries(t, "api@127.0.0.1:9443: 10.0.0.1:6443 dead")
		x.SetMembers(nil)
		x.carries(t, "api@127.0.0.1:9443: 10.0.0.1:6443 dead")
	})
}

func TestCheckResultsReachTheDataPlaneAtOnce(t *testing.T) {
	onSite(t, func(t *testing.T, x *site) {
		x.apply(t, ofList("api", "10.0.0.2:6443", "10.0.0.1:6443"))
		x.monitor.find("api/10.0.0.1:6443", health.Healthy, "200")
		x.carries(t, "api@127.0.0.1:9443: 10.0.0.1:6443 serving 10.0.0.2:6443 draining")
		x.monitor.find("api/10.0.0.2:6443", health.Healthy, "200")
		x.monitor.find("api/10.0.0.1:6443", health.Unhealthy, "connection refused")
		x.carries(t, "api@127.0.0.1:9443: 10.0.0.1:6443 dead 10.0.0.2:6443 serving")

		// The result of a process that was suspended is ignored.
		x.monitor.findVerdict(health.Verdict{Name: "api/10.0.0.2:6443", State: health.Unhealthy, Paused: true, Reason: "was suspended"})
		x.carries(t, "api@127.0.0.1:9443: 10.0.0.1:6443 dead 10.0.0.2:6443 serving")
	})
}

func TestReload(t *testing.T) {
	onSite(t, func(t *testing.T, x *site) {
		x.apply(t, ofList("api", "10.0.0.1:6443", "10.0.0.2:6443"))
		x.monitor.find("api/10.0.0.1:6443", health.Healthy, "200")
		x.monitor.find("api/10.0.0.2:6443", health.Healthy, "200")

		x.apply(t, ofList("api", "10.0.0.2:6443", "10.0.0.3:6443"))
		x.carries(t, "api@127.0.0.1:9443: 10.0.0.1:6443 draining 10.0.0.2:6443 serving 10.0.0.3:6443 draining")
		x.monitor.find("api/10.0.0.1:6443", health.Unhealthy, "connection refused")
		x.monitor.find("api/10.0.0.3:6443", health.Healthy, "200")
		x.carries(t, "api@127.0.0.1:9443: 10.0.0.1:6443 dead 10.0.0.2:6443 serving 10.0.0.3:6443 serving")

		// An external load balancer: no listener, but backends are still checked.
		external := ofList("api", "10.0.0.2:6443", "10.0.0.3:6443")
		external.Listen = nil
		x.apply(t, external)
		x.carries(t, "api: 10.0.0.1:6443 dead 10.0.0.2:6443 serving 10.0.0.3:6443 serving")
		x.monitor.find("api/10.0.0.3:6443", health.Unhealthy, "connection refused")
		if !x.serves("api") {
			t.Error("no backend of api serves")
		}
		x.monitor.find("api/10.0.0.2:6443", health.Unhealthy, "connection refused")
		if x.serves("api") || x.serves("nothing") {
			t.Error("serves with only dead backends, or without any")
		}
		x.carries(t, "api: 10.0.0.1:6443 dead 10.0.0.2:6443 dead 10.0.0.3:6443 dead")

		time.Sleep(4*time.Hour + s)
		synctest.Wait()
		if got, want := x.monitor.names(), "api/10.0.0.2:6443 api/10.0.0.3:6443"; got != want {
			t.Errorf("checks %s, want %s: the third is forgotten", got, want)
		}
		x.apply(t)
		x.carries(t, "")
	})
}

func TestAnotherSourceDrainsOldBackends(t *testing.T) {
	onSite(t, func(t *testing.T, x *site) {
		x.apply(t, ofMembers("api"))
		x.SetMembers([]Member{master("10.0.0.1"), master("10.0.0.2")})
		elsewhere := ofMembers("api")
		elsewhere.Backends.Members = &Members{Port: 7443, Checks: []string{"apiserver"}}
		x.apply(t, elsewhere)
		x.carries(t, "api@127.0.0.1:9443: 10.0.0.1:6443 draining 10.0.0.1:7443 serving 10.0.0.2:6443 draining 10.0.0.2:7443 serving")
		x.apply(t, ofList("api", "10.0.0.1:6443"))
		x.monitor.find("api/10.0.0.1:6443", health.Healthy, "200")
		x.carries(t, "api@127.0.0.1:9443: 10.0.0.1:6443 serving 10.0.0.1:7443 draining 10.0.0.2:6443 draining 10.0.0.2:7443 draining")
	})
}

func TestModeChangesTheDataPlane(t *testing.T) {
	onSite(t, func(t *testing.T, x *site) {
		x.SetMembers([]Member{master("10.0.0.1")})
		c := ofMembers("api")
		x.apply(t, c)
		var unserved bool // a moment without any listener
		watch := func() { unserved = unserved || x.kernel.String()+x.proxy.String() == "" }
		x.kernel.afterEach(watch)
		x.proxy.afterEach(watch)
		c.Mode = Proxy
		x.apply(t, c)
		x.carries(t, "")
		if got, want := x.proxy.String(), "api@127.0.0.1:9443: 10.0.0.1:6443 serving"; got != want {
			t.Errorf("proxy services %q, want %q", got, want)
		}
		c.Mode = Kernel
		x.apply(t, c)
		x.carries(t, "api@127.0.0.1:9443: 10.0.0.1:6443 serving")
		if got := x.proxy.String(); got != "" || unserved {
			t.Errorf("proxy services %q; unserved: %t", got, unserved)
		}
	})
}

func TestNames(t *testing.T) {
	onSite(t, func(t *testing.T, x *site) {
		x.apply(t, ofName("api"))
		synctest.Wait()
		if got, want := x.Status()[0].Error, "lookup masters.example on 10.0.0.53:53: no such host"; got != want {
			t.Errorf("error %q, want %q", got, want)
		}
		x.resolver.answer("10.0.0.1", "::ffff:10.0.0.2", "10.0.0.1")
		time.Sleep(lookUpRetry)
		synctest.Wait()
		if got, want := x.monitor.names(), "api/10.0.0.1:6443 api/10.0.0.2:6443"; got != want {
			t.Fatalf("checks %s, want %s", got, want)
		}
		_, network := x.resolver.queries()
		if network != "ip4" {
			t.Errorf("looked up %s for an IPv4 listener", network)
		}
		x.monitor.find("api/10.0.0.1:6443", health.Healthy, "200")
		x.monitor.find("api/10.0.0.2:6443", health.Healthy, "200")
		both := "api@127.0.0.1:9443: 10.0.0.1:6443 serving 10.0.0.2:6443 serving"
		x.carries(t, both)

		x.resolver.answer() // fails
		time.Sleep(30 * s)
		x.carries(t, both)
		if got := x.Status()[0]; got.Error == "" || got.Backends[0].Reason != "200" {
			t.Errorf("status after a failed look-up: %+v", got)
		}

		x.resolver.answer("10.0.0.2")
		time.Sleep(lookUpRetry)
		x.carries(t, "api@127.0.0.1:9443: 10.0.0.1:6443 draining 10.0.0.2:6443 serving")
		if got := x.Status()[0].Error; got != "" {
			t.Errorf("error %q after a successful look-up", got)
		}

		x.monitor.find("api/10.0.0.1:6443", health.Unhealthy, "connection refused")
		x.carries(t, "api@127.0.0.1:9443: 10.0.0.1:6443 dead 10.0.0.2:6443 serving")
		time.Sleep(4*time.Hour + s)
		x.carries(t, "api@127.0.0.1:9443: 10.0.0.2:6443 serving")

		asked, _ := x.resolver.queries()
		time.Sleep(10 * 30 * s)
		synctest.Wait()
		after, _ := x.resolver.queries()
		if n := after - asked; n < 9 || n > 11 {
			t.Errorf("%d look-ups in ten intervals, want 9 to 11", n)
		}
	})
}

func TestNameOfManyAddresses(t *testing.T) {
	onSite(t, func(t *testing.T, x *site) {
		var many []string
		for i := range 200 {
			many = append(many, netip.AddrFrom4([4]byte{10, 0, 1, byte(i)}).String())
		}
		x.resolver.answer(many...)
		x.apply(t, ofName("api"))
		synctest.Wait()
		if n := len(strings.Fields(x.monitor.names())); n != maxAddresses {
			t.Errorf("%d addresses are used, want %d", n, maxAddresses)
		}
	})
}

func TestFailedApplyIsRetried(t *testing.T) {
	onSite(t, func(t *testing.T, x *site) {
		x.kernel.fail(errors.New("no room in the table"))
		x.apply(t, ofMembers("api"))
		x.SetMembers([]Member{master("10.0.0.1")})
		if got, want := x.Status()[0].Error, "no room in the table"; got != want {
			t.Errorf("error %q, want %q", got, want)
		}
		time.Sleep(10*retry + retry/2)
		if x.kernel.tries() != 11 {
			t.Errorf("Apply was called %d times, want once and then every %v", x.kernel.tries(), retry)
		}
		x.SetMembers([]Member{master("10.0.0.1")})                     // no change
		x.SetMembers([]Member{master("10.0.0.1"), master("10.0.0.2")}) // a change is applied at once
		if x.kernel.tries() != 12 {
			t.Errorf("Apply was called %d times, want once more", x.kernel.tries())
		}
		x.kernel.fail(nil)
		time.Sleep(retry)
		x.carries(t, "api@127.0.0.1:9443: 10.0.0.1:6443 serving 10.0.0.2:6443 serving")
		if got := x.Status()[0].Error; got != "" {
			t.Errorf("error %q after a successful Apply", got)
		}
	})
}

// An error about one service does not appear at another.
func TestErrorsOfOneService(t *testing.T) {
	onSite(t, func(t *testing.T, x *site) {
		a, b, c := ofMembers("a"), ofMembers("b"), ofMembers("c")
		b.Listen, c.Listen = listen("127.0.0.1:5000"), listen("127.0.0.1:5001")
		x.kernel.fail(errors.Join(&ServiceError{"a", errors.New("cannot listen")}, fmt.Errorf("half done: %w", &ServiceError{"b", errors.New("is odd")})))
		x.apply(t, a, b, c)
		x.SetMembers([]Member{master("10.0.0.1")})
		for i, want := range []string{"balancer a cannot listen", "half done: balancer b is odd", ""} {
			if got := x.Status()[i].Error; got != want {
				t.Errorf("%s: error %q, want %q", x.Status()[i].Name, got, want)
			}
		}
		x.kernel.fail(errors.Join(errors.New("no room"), &ServiceError{"a", errors.New("cannot listen")}))
		time.Sleep(retry)
		synctest.Wait()
		if got, want := x.Status()[2].Error, "no room"; got != want {
			t.Errorf("c: error %q, want %q", got, want)
		}
	})
}

func TestStatus(t *testing.T) {
	onSite(t, func(t *testing.T, x *site) {
		c := ofMembers("api")
		c.Method = SourceHash
		x.apply(t, c)
		x.SetMembers([]Member{master("10.0.0.1"), master("10.0.0.2")})
		start := time.Now()
		time.Sleep(s)
		x.SetMembers([]Member{master("10.0.0.1"), master("10.0.0.2", fails)})
		x.kernel.count(Count{Service: "api", Backend: addrPorts("10.0.0.1:6443")[0], Connections: 7, Open: 3})
		want := []Status{{
			Name: "api", Mode: Kernel, Method: SourceHash,
			Backends: []BackendStatus{{
				Backend: Backend{Name: "m1", Addr: addrPorts("10.0.0.1:6443")[0], State: Serving, Reason: "healthy: apiserver"},
				Since:   start, Connections: 7, Open: 3,
			}, {
				Backend: Backend{Name: "m2", Addr: addrPorts("10.0.0.2:6443")[0], State: Dead, Reason: "unhealthy: apiserver"},
				Since:   start.Add(s),
			}},
		}}
		opts := cmp.Options{cmp.Comparer(func(x, y netip.AddrPort) bool { return x == y })}
		if diff := cmp.Diff(want, x.Status(), opts); diff != "" {
			t.Errorf("status (-want +got):\n%s", diff)
		}
	})
}

func TestWrongConfiguration(t *testing.T) {
	onSite(t, func(t *testing.T, x *site) {
		x.SetMembers([]Member{master("10.0.0.1")})
		x.apply(t, ofMembers("api"))
		c := ofMembers("x")
		c.Backends, c.Check = Backends{Static: &Static{Addresses: addrPorts("10.0.0.1:1")}}, &Probe{TCP: &health.TCP{Address: "backend:1"}}
		want := `balancer: check "x/10.0.0.1:1": interval must be positive`
		if err := x.Apply([]Config{ofMembers("api"), c}); err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
		x.carries(t, "api@127.0.0.1:9443: 10.0.0.1:6443 serving")
	})
}

// A slow data plane delays no other method. Its next Apply has all changes since.
func TestNoMethodWaitsForADataPlane(t *testing.T) {
	onSite(t, func(t *testing.T, x *site) {
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
	onSite(t, func(t *testing.T, x *site) {
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
	onSite(t, func(t *testing.T, x *site) {
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

// busyDataPlane detects concurrent calls of Counts.
type busyDataPlane struct {
	begun    chan struct{} // holds one for each count
	release  chan struct{} // closed to end all counts
	counting atomic.Int32
	overlap  atomic.Bool
	counts   atomic.Int32
}

func (p *busyDataPlane) Apply([]Service) error { return nil }
func (p *busyDataPlane) Close() error          { return nil }
func (p *busyDataPlane) Counts() ([]Count, error) {
	if p.counting.Add(1) > 1 {
		p.overlap.Store(true)
	}
	defer p.counting.Add(-1)
	p.counts.Add(1)
	p.begun <- struct{}{}
	<-p.release
	return nil, errors.New("not known")
}

// Many concurrent calls of Status read the counters of a data plane once.
func TestStatusCountsOnceForAll(t *testing.T) {
	const many = 50
	plane := &busyDataPlane{begun: make(chan struct{}, many+1), release: make(chan struct{})}
	s := New(nil, plane, new(fakePlane))
	defer s.Close()
	var asking sync.WaitGroup
	asking.Go(func() { s.Status() })
	<-plane.begun
	var here sync.WaitGroup
	here.Add(many)
	for range many {
		asking.Go(func() {
			here.Done()
			s.Status()
		})
	}
	here.Wait()
	close(plane.release)
	asking.Wait()
	if plane.overlap.Load() {
		t.Error("Counts was called concurrently")
	}

	asked := plane.counts.Load()
	s.counter.begun = time.Now().Add(time.Hour) // as if another caller read them later
	s.Status()
	if plane.counts.Load() != asked {
		t.Error("a fresh result was read again")
	}
}

// After a failed read the open connections are -1, and counters do not fall.
func TestStatusWithoutCounts(t *testing.T) {
	onSite(t, func(t *testing.T, x *site) {
		x.apply(t, ofMembers("api"))
		x.SetMembers([]Member{master("10.0.0.1")})
		backend := netip.MustParseAddrPort("10.0.0.1:6443")
		x.kernel.count(Count{Service: "api", Backend: backend, Connections: 7, Open: 2})
		x.Status()
		time.Sleep(time.Second)
		x.kernel.failCounts(errors.New("nftables does not answer"))
		status := x.Status()[0]
		if want := "cannot count connections: nftables does not answer"; status.Error != want || status.Backends[0].Open != -1 {
			t.Errorf("status %+v, want the error %q and -1 open", status, want)
		}
		if got := status.Backends[0].Connections; got != 7 {
			t.Errorf("the counter fell from 7 to %d", got)
		}
	})
}
