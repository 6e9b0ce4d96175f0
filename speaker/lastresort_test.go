package speaker_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herald-vip/herald/bgp"
	election "github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/netutil/route"
	"github.com/herald-vip/herald/speaker"
)

// others fakes the other members. Their advertisements are always fresh.
type others struct {
	mu     sync.Mutex
	serve  bool            // the others serve the VIP
	serves map[string]bool // last advertised by this node
	during func()          // called by Tell unless nil
}

func (o *others) Tell(serves map[string]bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.serves = maps.Clone(serves)
	if o.during != nil {
		o.during()
	}
}

func (o *others) Heard(string, []string) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.serve {
		return time.Time{}
	}
	return time.Now()
}

func (o *others) set(serve bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.serve = serve
}

func (o *others) told() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.serves["control-plane"]
}

func slow(check string) health.Verdict {
	v := verdict(check, health.Unhealthy)
	v.Slow = true
	return v
}

// runKeep calls f with a running speaker that has a VIP with Keep.
func runKeep(t *testing.T, f func(t *testing.T, s *speaker.Speaker, n *node, o *others)) {
	synctest.Test(t, func(t *testing.T) {
		n, o := newNode(), &others{}
		s := speaker.New(slog.New(slog.DiscardHandler), n, route.New(), n, speaker.FlatParts{}, bridge{n}, o)
		whileRunning(t, s, func() {
			v := vip()
			v.Keep = true
			s.Apply([]speaker.VIP{v}, peers(), unknown())
			n.takeSteps()
			f(t, s, n, o)
		})
	})
}

// A VIP that fails slowly stays, demoted, until another member has served it for a while. It does not stay if
// connections are refused, or if it was not announced before.
func TestKeep(t *testing.T) {
	runKeep(t, func(t *testing.T, s *speaker.Speaker, n *node, o *others) {
		stage := func(stage speaker.Stage, kept bool, reason string) {
			t.Helper()
			if st := s.Summary().Addresses[0]; st.Stage != stage || st.Kept != kept || !strings.HasPrefix(st.Reason, reason) {
				t.Errorf("%s, kept %t, reason %q; want %s, %t, %q", st.Stage, st.Kept, st.Reason, stage, kept, reason)
			}
		}
		s.Observe(slow("apiserver"))
		expect(t, n, "unbind 10.99.0.10")
		healthy(s)
		expect(t, n, "bind 10.99.0.10", "announce 10.99.0.10")
		if !o.told() {
			t.Error("the VIP is not advertised as served")
		}

		s.Observe(slow("apiserver"))
		expect(t, n, "mark 10.99.0.10")
		stage(speaker.Demoted, true, "kept as the last resort, since no other member is known to serve it: apiserver: because")
		if o.told() {
			t.Error("the failing VIP is advertised as served")
		}
		pass(time.Hour)
		expect(t, n)

		o.set(true)
		s.MembersChanged()
		synctest.Wait()
		stage(speaker.Demoted, true, "kept as the last resort, until another member is sure to serve it")
		pass(time.Second)
		expect(t, n, "withdraw 10.99.0.10", "unbind 10.99.0.10")
		stage(speaker.Withdrawn, false, "apiserver: because")
		o.set(false)
		s.MembersChanged()
		pass(time.Minute)
		expect(t, n)

		s.Observe(verdict("apiserver", health.Healthy))
		expect(t, n, "bind 10.99.0.10", "announce 10.99.0.10")
		s.Observe(slow("apiserver"))
		expect(t, n, "mark 10.99.0.10")
		s.Observe(verdict("apiserver", health.Unhealthy)) // not slowly
		expect(t, n, "withdraw 10.99.0.10", "unbind 10.99.0.10")
		if last := s.Summary().Addresses[0].LastWithdrawal; last == nil || last.Reason != "apiserver: because" {
			t.Errorf("last withdrawal %+v", last)
		}
	})
}

// MembersChanged does not wait for the speaker, which may be busy for long. Here it is busy until the call returns.
func TestMembersChangedDoesNotWait(t *testing.T) {
	runKeep(t, func(t *testing.T, s *speaker.Speaker, n *node, o *others) {
		o.mu.Lock()
		o.during = s.MembersChanged
		o.mu.Unlock()
		healthy(s)
		s.Observe(slow("apiserver"))
		expect(t, n, "bind 10.99.0.10", "announce 10.99.0.10", "mark 10.99.0.10")
	})
}

// A reload that removes the policy withdraws the VIP.
func TestReloadEndsKeep(t *testing.T) {
	runKeep(t, func(t *testing.T, s *speaker.Speaker, n *node, _ *others) {
		healthy(s)
		s.Observe(slow("apiserver"))
		n.takeSteps()
		s.Apply([]speaker.VIP{vip()}, peers(), []health.Verdict{slow("apiserver"), verdict("registry", health.Healthy)})
		expect(t, n, "withdraw 10.99.0.10", "unbind 10.99.0.10")
		healthy(s)
		if st := s.Summary().Addresses[0]; st.Stage != speaker.Announced || st.Kept {
			t.Errorf("%s, kept %t", st.Stage, st.Kept)
		}
	})
}

// The VIP does not stay unless all its failing checks fail slowly, or in a drain.
func TestNotKept(t *testing.T) {
	for name, fail := range map[string]func(s *speaker.Speaker){
		"refused": func(s *speaker.Speaker) { s.Observe(verdict("apiserver", health.Unhealthy)) },
		"refused, then slow": func(s *speaker.Speaker) {
			s.Observe(verdict("registry", health.Unhealthy))
			s.Observe(slow("apiserver"))
		},
		"slow, then refused": func(s *speaker.Speaker) {
			s.Observe(slow("apiserver"))
			s.Observe(verdict("registry", health.Unhealthy))
		},
		"drained": func(s *speaker.Speaker) { s.Observe(slow("apiserver")); s.Drain("herald drain", 0) },
	} {
		t.Run(name, func(t *testing.T) {
			runKeep(t, func(t *testing.T, s *speaker.Speaker, n *node, _ *others) {
				healthy(s)
				fail(s)
				if st := s.Summary().Addresses[0]; st.Stage != speaker.Withdrawn || st.Kept {
					t.Errorf("%s: %s", st.Stage, st.Reason)
				}
			})
		})
	}
}

// site is three members that exchange advertisements, routers, and a lease that a candidate always holds.
type site struct {
	rng   *rand.Rand    // for losses and delays
	loss  float64       // probability of losing an advertisement
	delay time.Duration // maximum delay of an advertisement
	flat  bool

	mu      sync.Mutex // never held during a call of a speaker
	members []*member
	cut     map[int]bool
	since   time.Time
	gaps    []string // times at which no member served the VIP
	began   bool     // a member has served it
	changed chan struct{}
}

type advertisement struct {
	serves   bool
	sequence int
	at       time.Time
}

type member struct {
	*site
	number    int
	speaker   *speaker.Speaker
	serves    bool
	sent      int // number of its advertisements
	received  map[int]advertisement
	route     bool // the routers have its route
	bound     bool
	campaigns bool
	holds     bool
}

const hold = 600 * time.Millisecond

func (m *member) Tell(serves map[string]bool) {
	m.mu.Lock()
	m.serves = serves["control-plane"]
	m.mu.Unlock()
	for _, after := range []time.Duration{0, 20 * time.Millisecond, 60 * time.Millisecond} {
		time.AfterFunc(after, m.advertise)
	}
}

// advertise sends an advertisement to the others, with losses and delays.
func (m *member) advertise() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sent++
	for _, dst := range m.members {
		if dst == m || m.rng.Float64() < m.loss || m.cut[m.number] || m.cut[dst.number] {
			continue
		}
		a := advertisement{serves: m.serves, sequence: m.sent}
		time.AfterFunc(time.Duration(m.rng.Int64N(int64(m.delay)+1)), func() { dst.receive(m.number, a) })
	}
}

func (m *member) receive(from int, a advertisement) {
	m.mu.Lock()
	before := m.received[from]
	if a.sequence <= before.sequence {
		m.mu.Unlock()
		return
	}
	a.at = time.Now()
	m.received[from] = a
	m.mu.Unlock()
	if before.serves != a.serves {
		m.speaker.MembersChanged()
	}
}

func (m *member) Heard(string, []string) (last time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range m.received {
		if a.serves && time.Since(a.at) < hold && a.at.After(last) {
			last = a.at
		}
	}
	return last
}

// reachable reports whether routers or neighbours reach the VIP at m. The caller holds the mutex.
func (m *member) reachable() bool { return m.flat && m.holds && m.bound || !m.flat && m.route }

// look records a gap if no member serves the VIP. The caller holds the mutex.
func (s *site) look() {
	served := slices.ContainsFunc(s.members, (*member).reachable)
	s.began = s.began || served
	if s.began && !served && len(s.gaps) < 3 {
		s.gaps = append(s.gaps, fmt.Sprint(time.Since(s.since)))
	}
}

func (m *member) Announce(routes ...bgp.Route) error {
	if len(routes) > 0 {
		m.setRoute(true)
	}
	return nil
}

func (m *member) Withdraw(prefixes ...netip.Prefix) error {
	if len(prefixes) > 0 {
		m.setRoute(false)
	}
	return nil
}

func (m *member) setRoute(present bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.route = present
	if !m.flat { // the transfer of a lease takes no time here and must not count as a gap
		m.look()
	}
}

func (m *member) setBound(bound bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bound = bound
	return nil
}

func (m *member) Bind(string, netip.Addr) error { return m.setBound(true) }

func (m *member) BindFor(link string, addr netip.Addr, _ time.Duration) error {
	return m.Bind(link, addr)
}

func (m *member) Unbind(string, ...netip.Addr) error { return m.setBound(false) }
func (m *member) Try(string, netip.Addr) error       { return nil }

// leases gives a member access to the site's lease.
type leases struct{ *member }

func (l leases) Campaign(...election.Candidacy) { l.setCampaigns(true) }
func (l leases) StepDown(...string)             { l.setCampaigns(false) }
func (l leases) Forget(...string)               { l.setCampaigns(false) }

func (l leases) setCampaigns(campaigns bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.campaigns = campaigns
	l.holds = l.holds && campaigns
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

func (l leases) Lease(...string) speaker.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holds {
		return speaker.Lease{Until: time.Now().Add(hold)}
	}
	return speaker.Lease{Reason: "another holds the lease"}
}

// grant gives the lease to a connected candidate, and takes it from a holder that is cut off.
func (s *site) grant() {
	s.mu.Lock()
	var free []*member
	var former, next *member
	held := false
	for _, m := range s.members {
		if m.holds && s.cut[m.number] {
			m.holds, former = false, m
		}
		held = held || m.holds
		if m.campaigns && !s.cut[m.number] {
			free = append(free, m)
		}
	}
	if !held && len(free) > 0 {
		next = free[s.rng.IntN(len(free))]
		next.holds = true
	}
	s.mu.Unlock()
	for _, m := range []*member{former, next} {
		if m != nil {
			m.speaker.LeasesChanged()
		}
	}
}

// set sets the verdict of a member's check.
func (s *site) set(number int, v health.Verdict) {
	v.Since, v.Cause = time.Now(), time.Now()
	s.members[number].speaker.Observe(v)
}

// runSite calls f with three members that serve the VIP.
func runSite(t *testing.T, seed uint64, flat bool, loss float64, delay time.Duration, f func(s *site)) *site {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // https://go.dev/issue/78156
	s := &site{rng: rand.New(rand.NewPCG(seed, 1)), flat: flat, loss: loss, delay: delay, cut: make(map[int]bool), changed: make(chan struct{}, 1)}
	synctest.Test(t, func(t *testing.T) {
		s.changed = make(chan struct{}, 1)
		s.since = time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		var work sync.WaitGroup
		v := speaker.VIP{Name: "control-plane", Addresses: []netip.Addr{v4}, Interface: "lo", Checks: []string{"apiserver"}, HoldDown: 10 * time.Second, Keep: true}
		if flat {
			v.Interface, v.Flat = "eth0", &speaker.Flat{Priority: 100, Lifetime: 2 * time.Second, Leases: []string{v.Name}}
		}
		for i := range 3 {
			m := &member{site: s, number: i, received: make(map[int]advertisement)}
			s.members = append(s.members, m)
			parts := speaker.FlatParts{Leases: leases{m}, Announcer: open{}}
			m.speaker = speaker.New(slog.New(slog.NewTextHandler(io.Discard, nil)), m, route.New(), m, parts, nil, m)
		}
		work.Go(func() {
			for ctx.Err() == nil {
				select {
				case <-ctx.Done():
				case <-s.changed:
					s.grant()
				}
			}
		})
		for _, m := range s.members {
			m.speaker.Apply([]speaker.VIP{v}, []string{"r1"}, []health.Verdict{{Name: "apiserver"}})
			work.Go(func() { m.speaker.Run(ctx) })
			work.Go(func() {
				for time.Sleep(time.Duration(m.number) * 37 * time.Millisecond); ctx.Err() == nil; time.Sleep(hold / 4) {
					m.advertise()
				}
			})
			s.set(m.number, verdict("apiserver", health.Healthy))
		}
		work.Go(func() {
			for ; ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
				synctest.Wait()
				s.mu.Lock()
				s.look()
				s.mu.Unlock()
			}
		})
		time.Sleep(2 * time.Second)
		f(s)
		cancel()
		work.Wait()
		time.Sleep(time.Second) // until delayed advertisements have arrived
	})
	return s
}

// serving returns the members that routers or neighbours reach.
func (s *site) serving() (all []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.members {
		if m.reachable() {
			all = append(all, m.number)
		}
	}
	return all
}

// Three members fail slowly, within 3 s, at one instant or with flaps, while advertisements are lost or one member is cut off. At least one
// member serves the VIP all the time. A member that recovers in the end serves it alone.
func TestLastResortAlwaysServes(t *testing.T) {
	for _, flat := range []bool{false, true} {
		for _, loss := range []float64{0, 0.5} {
			for _, kind := range []string{"once", "at the same instant", "one cut off", "flaps"} {
				t.Run(fmt.Sprintf("flat %t/loss %v/%s", flat, loss, kind), func(t *testing.T) {
					for seed := range uint64(15) {
						rng := rand.New(rand.NewPCG(seed, 2))
						var alone []int
						s := runSite(t, seed, flat, loss, time.Duration(5+seed%3*150)*time.Millisecond, func(s *site) {
							wait := func(most time.Duration) { time.Sleep(time.Duration(rng.Int64N(int64(most) + 1))) }
							if kind == "one cut off" {
								s.mu.Lock()
								s.cut[rng.IntN(3)] = true
								s.mu.Unlock()
								s.grant()
							}
							var all sync.WaitGroup
							for i, d := range rng.Perm(3000)[:3] {
								script := rand.New(rand.NewPCG(seed, uint64(10+i)))
								all.Go(func() {
									if kind != "at the same instant" {
										time.Sleep(time.Duration(d) * time.Millisecond)
									}
									s.set(i, slow("apiserver"))
									for flap := 0; kind == "flaps" && flap < 6; flap++ {
										time.Sleep(time.Duration(script.IntN(3000)) * time.Millisecond)
										s.set(i, verdict("apiserver", health.Healthy))
										time.Sleep(time.Duration(script.IntN(1500)) * time.Millisecond)
										s.set(i, slow("apiserver"))
									}
								})
							}
							all.Wait()
							wait(10 * time.Second)
							s.mu.Lock()
							clear(s.cut)
							s.mu.Unlock()
							s.set(1, verdict("apiserver", health.Healthy))
							time.Sleep(20 * time.Second)
							alone = s.serving()
						})
						if len(s.gaps) > 0 || len(alone) != 1 || alone[0] != 1 {
							t.Errorf("seed %d: no member served the VIP at %v; in the end %v did, want 1 alone", seed, s.gaps, alone)
							return
						}
					}
				})
			}
		}
	}
}

// Last-resort members give up one by one, and the others go on, on a flat layer 2 with one of them as the holder. A member that gave up
// does not return as the last resort. After the last one no member serves the VIP until one recovers.
func TestLastResortsGiveUp(t *testing.T) {
	for _, flat := range []bool{false, true} {
		for seed := range uint64(5) {
			runSite(t, seed, flat, 0, 50*time.Millisecond, func(s *site) {
				for i := range s.members {
					s.set(i, slow("apiserver"))
				}
				for _, step := range []struct {
					member  int
					verdict health.Verdict
					keep    []int // members that may serve
				}{
					{0, slow("apiserver"), []int{0, 1, 2}},
					{0, verdict("apiserver", health.Unhealthy), []int{1, 2}},
					{0, slow("apiserver"), []int{1, 2}},
					{1, verdict("apiserver", health.Unhealthy), []int{2}},
					{2, verdict("apiserver", health.Unhealthy), nil},
					{2, slow("apiserver"), nil},
					{1, verdict("apiserver", health.Healthy), []int{1}},
					{1, slow("apiserver"), []int{1}},
				} {
					s.set(step.member, step.verdict)
					time.Sleep(20 * time.Second) // longer than a hold-down
					got := s.serving()
					if flat && (len(got) != min(len(step.keep), 1) || len(got) == 1 && !slices.Contains(step.keep, got[0])) || !flat && !slices.Equal(got, step.keep) {
						t.Errorf("flat %t, seed %d, member %d %s, slow %t: serving %v, want of %v", flat, seed, step.member, step.verdict.State, step.verdict.Slow, got, step.keep)
					}
				}
			})
		}
	}
}

// With Demote a failure marks the route and keeps the address. An address that never was healthy is not
// announced.
func TestDemote(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		v := vip()
		v.OnFailure, v.HoldDown = speaker.Demote, time.Minute
		s.Apply([]speaker.VIP{v}, peers(), unknown())
		s.Observe(verdict("apiserver", health.Unhealthy))
		expect(t, n, "unbind 10.99.0.10")
		healthy(s)
		expect(t, n, "bind 10.99.0.10", "announce 10.99.0.10")

		s.Observe(verdict("apiserver", health.Unhealthy))
		expect(t, n, "mark 10.99.0.10")
		if st := s.Summary().Addresses[0]; st.Stage != speaker.Demoted || st.Reason != "apiserver: because" || st.LastWithdrawal != nil {
			t.Errorf("status %+v", st)
		}
		s.Observe(verdict("apiserver", health.Healthy))
		expect(t, n, "announce 10.99.0.10")

		// Damping limits the updates to peers.
		s.Observe(verdict("apiserver", health.Unhealthy))
		s.Observe(verdict("apiserver", health.Healthy))
		expect(t, n, "mark 10.99.0.10")
		pass(time.Second)
		expect(t, n, "announce 10.99.0.10")

		// A drain withdraws the demoted route, which does not return while unhealthy.
		s.Observe(verdict("apiserver", health.Unhealthy))
		n.takeSteps()
		drain(t, s)
		expect(t, n, "withdraw 10.99.0.10", "unbind 10.99.0.10")
		if last := s.Summary().Addresses[0].LastWithdrawal; last != nil {
			t.Errorf("a drain counts as a failure: %+v", last)
		}
		s.Undrain()
		expect(t, n)
	})
}

// A reload that removes the policy withdraws the demoted route.
func TestReloadEndsDemotion(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		v := vip()
		v.OnFailure = speaker.Demote
		serve(s, n, v)
		failed := verdict("apiserver", health.Unhealthy)
		s.Observe(failed)
		n.takeSteps()
		v.OnFailure = speaker.Withdraw
		s.Apply([]speaker.VIP{v}, peers(), []health.Verdict{failed, verdict("registry", health.Healthy)})
		expect(t, n, "withdraw 10.99.0.10", "unbind 10.99.0.10")
	})
}
