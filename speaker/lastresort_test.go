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
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/netutil/route"
	"github.com/herald-vip/herald/speaker"
)

// others are members that serve since a time, of which the word is always fresh, if they serve at all.
type others struct {
	mu     sync.Mutex
	serve  bool
	serves map[string]bool // what this one told
	busy   func()          // what the speaker is told meanwhile, if anything
}

func (o *others) Tell(serves map[string]bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.serves = maps.Clone(serves)
	if o.busy != nil {
		o.busy()
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

// runKeeping gives f a speaker whose VIP is to be kept, and announced.
func runKeeping(t *testing.T, f func(t *testing.T, s *speaker.Speaker, n *node, o *others)) {
	synctest.Test(t, func(t *testing.T) {
		n, o := newNode(), &others{}
		s := speaker.New(slog.New(slog.DiscardHandler), n, route.New(), n, speaker.FlatParts{}, bridge{n}, o)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { s.Run(ctx); close(done) }()
		v := vip()
		v.Keep = true
		s.Apply([]speaker.VIP{v}, peers(), unknown())
		n.took()
		f(t, s, n, o)
		cancel()
		<-done
	})
}

// What fails slowly stays, demoted, until another member serves it for a while; a refused connection
// never does, and what was not announced is not announced.
func TestKeep(t *testing.T) {
	runKeeping(t, func(t *testing.T, s *speaker.Speaker, n *node, o *others) {
		stage := func(stage speaker.Stage, kept bool, reason string) {
			t.Helper()
			if st := s.Summary().Addresses[0]; st.Stage != stage || st.Kept != kept || !strings.HasPrefix(st.Reason, reason) {
				t.Errorf("%s, kept %t: %q; want %s, %t: %q", st.Stage, st.Kept, st.Reason, stage, kept, reason)
			}
		}
		s.Observe(slow("apiserver"))
		expect(t, n, "unbind 10.99.0.10")
		healthy(s)
		expect(t, n, "bind 10.99.0.10", "announce 10.99.0.10")
		if !o.told() {
			t.Error("the others do not hear that it is served")
		}

		s.Observe(slow("apiserver"))
		expect(t, n, "mark 10.99.0.10")
		stage(speaker.Demoted, true, "kept as the last resort, since no other member is known to serve it: apiserver: because")
		if o.told() {
			t.Error("the others hear that what fails is served")
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		expect(t, n)

		o.set(true)
		s.MembersChanged()
		synctest.Wait()
		stage(speaker.Demoted, true, "kept as the last resort, until another member is sure to serve it")
		time.Sleep(time.Second)
		synctest.Wait()
		expect(t, n, "withdraw 10.99.0.10", "unbind 10.99.0.10")
		stage(speaker.Withdrawn, false, "apiserver: because")
		o.set(false)
		s.MembersChanged()
		time.Sleep(time.Minute)
		synctest.Wait()
		expect(t, n)

		s.Observe(verdict("apiserver", health.Healthy))
		expect(t, n, "bind 10.99.0.10", "announce 10.99.0.10")
		s.Observe(slow("apiserver"))
		expect(t, n, "mark 10.99.0.10")
		s.Observe(verdict("apiserver", health.Unhealthy)) // refused
		expect(t, n, "withdraw 10.99.0.10", "unbind 10.99.0.10")
		if last := s.Summary().Addresses[0].LastWithdrawal; last == nil || last.Reason != "apiserver: because" {
			t.Errorf("last withdrawal %+v", last)
		}
	})
}

// Who tells of other members does not wait for the speaker, which may be busy for long: here it is until that has been told.
func TestMembersChangedWaitsForNobody(t *testing.T) {
	runKeeping(t, func(t *testing.T, s *speaker.Speaker, n *node, o *others) {
		o.mu.Lock()
		o.busy = s.MembersChanged
		o.mu.Unlock()
		healthy(s)
		s.Observe(slow("apiserver"))
		expect(t, n, "bind 10.99.0.10", "announce 10.99.0.10", "mark 10.99.0.10")
	})
}

// A reload that ends the policy ends what it keeps.
func TestKeepingIsTakenBack(t *testing.T) {
	runKeeping(t, func(t *testing.T, s *speaker.Speaker, n *node, _ *others) {
		healthy(s)
		s.Observe(slow("apiserver"))
		n.took()
		s.Apply([]speaker.VIP{vip()}, peers(), []health.Verdict{slow("apiserver"), verdict("registry", health.Healthy)})
		expect(t, n, "withdraw 10.99.0.10", "unbind 10.99.0.10")
		healthy(s)
		if st := s.Summary().Addresses[0]; st.Stage != speaker.Announced || st.Kept {
			t.Errorf("%s, kept %t", st.Stage, st.Kept)
		}
	})
}

// It is slow only if all that fails is, and not kept by a drain.
func TestNotKept(t *testing.T) {
	for name, fail := range map[string]func(s *speaker.Speaker){
		"refused": func(s *speaker.Speaker) { s.Observe(verdict("apiserver", health.Unhealthy)) },
		"one of two, first": func(s *speaker.Speaker) {
			s.Observe(verdict("registry", health.Unhealthy))
			s.Observe(slow("apiserver"))
		},
		"one of two, at last": func(s *speaker.Speaker) {
			s.Observe(slow("apiserver"))
			s.Observe(verdict("registry", health.Unhealthy))
		},
		"drained": func(s *speaker.Speaker) { s.Observe(slow("apiserver")); s.Drain("herald drain", 0) },
	} {
		t.Run(name, func(t *testing.T) {
			runKeeping(t, func(t *testing.T, s *speaker.Speaker, n *node, _ *others) {
				healthy(s)
				fail(s)
				if st := s.Summary().Addresses[0]; st.Stage != speaker.Withdrawn || st.Kept {
					t.Errorf("%s: %s", st.Stage, st.Reason)
				}
			})
		})
	}
}

// A site is three members, their words to each other, routers, and a lease that is always granted to one that stands.
type site struct {
	rng   *rand.Rand // of what happens to words
	loss  float64
	delay time.Duration
	flat  bool

	mu      sync.Mutex // held for a moment, and never while a speaker is told
	members []*member
	cut     map[int]bool
	since   time.Time
	gaps    []string // when there was nobody
	began   bool     // somebody has had it
	changed chan struct{}
}

type word struct {
	serves   bool
	sequence int
	at       time.Time
}

type member struct {
	*site
	number  int
	speaker *speaker.Speaker
	serves  bool
	said    int
	heard   map[int]word
	route   bool // the routers have
	bound   bool
	stands  bool
	holds   bool
}

const hold = 600 * time.Millisecond

func (m *member) Tell(serves map[string]bool) {
	m.mu.Lock()
	m.serves = serves["control-plane"]
	m.mu.Unlock()
	for _, after := range []time.Duration{0, 20 * time.Millisecond, 60 * time.Millisecond} {
		time.AfterFunc(after, m.say)
	}
}

// say tells the others, some of which hear it after a while.
func (m *member) say() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.said++
	for _, to := range m.members {
		if to == m || m.rng.Float64() < m.loss || m.cut[m.number] || m.cut[to.number] {
			continue
		}
		w := word{serves: m.serves, sequence: m.said}
		time.AfterFunc(time.Duration(m.rng.Int64N(int64(m.delay)+1)), func() { to.hear(m.number, w) })
	}
}

func (m *member) hear(from int, w word) {
	m.mu.Lock()
	before := m.heard[from]
	if w.sequence <= before.sequence {
		m.mu.Unlock()
		return
	}
	w.at = time.Now()
	m.heard[from] = w
	m.mu.Unlock()
	if before.serves != w.serves {
		m.speaker.MembersChanged()
	}
}

func (m *member) Heard(string, []string) (last time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.heard {
		if w.serves && time.Since(w.at) < hold && w.at.After(last) {
			last = w.at
		}
	}
	return last
}

// look notes when nobody has it. The mutex is held.
func (s *site) look() {
	there := false
	for _, m := range s.members {
		there = there || s.flat && m.holds && m.bound || !s.flat && m.route
	}
	s.began = s.began || there
	if s.began && !there && len(s.gaps) < 3 {
		s.gaps = append(s.gaps, fmt.Sprint(time.Since(s.since)))
	}
}

func (m *member) Announce(routes ...bgp.Route) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(routes) > 0 {
		m.route = true
	}
	if !m.flat { // a lease is handed over in one instant, which is no gap
		m.look()
	}
	return nil
}

func (m *member) Withdraw(prefixes ...netip.Prefix) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(prefixes) > 0 {
		m.route = false
	}
	if !m.flat { // a lease is handed over in one instant, which is no gap
		m.look()
	}
	return nil
}

func (m *member) Bind(string, netip.Addr) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bound = true
	return nil
}

func (m *member) BindFor(link string, addr netip.Addr, _ time.Duration) error {
	return m.Bind(link, addr)
}

func (m *member) Unbind(string, ...netip.Addr) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bound = false
	return nil
}
func (m *member) Try(string, netip.Addr) error { return nil }

// leases are the site's, as a member sees them.
type leases struct{ *member }

func (l leases) Campaign(string, speaker.Flat) { l.stand(true) }
func (l leases) StepDown(string)               { l.stand(false) }
func (l leases) Forget(string)                 { l.stand(false) }

func (l leases) stand(stands bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stands = stands
	if !stands {
		l.holds = false
	}
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

func (l leases) Lease(string) speaker.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holds {
		return speaker.Lease{Until: time.Now().Add(hold)}
	}
	return speaker.Lease{Reason: "another holds the lease"}
}

// grant gives the lease to one that stands and is not cut off, and takes it from one that is.
func (s *site) grant() {
	s.mu.Lock()
	var free []*member
	var told *member
	held := false
	for _, m := range s.members {
		if m.holds && s.cut[m.number] {
			m.holds, told = false, m
		}
		held = held || m.holds
		if m.stands && !s.cut[m.number] {
			free = append(free, m)
		}
	}
	var to *member
	if !held && len(free) > 0 {
		to = free[s.rng.IntN(len(free))]
		to.holds = true
	}
	s.mu.Unlock()
	if told != nil {
		told.speaker.LeasesChanged()
	}
	if to != nil {
		to.speaker.LeasesChanged()
	}
}

// quiet is an announcer that nobody listens to.
type quiet struct{}

func (quiet) Announce(time.Time, string, ...netip.Addr) error { return nil }
func (quiet) Try() error                                      { return nil }
func (quiet) Withdraw(string, ...netip.Addr)                  {}
func (quiet) Limit(time.Time, string, ...netip.Addr)          {}

// set has a member's check say something.
func (s *site) set(number int, v health.Verdict) {
	v.Since, v.Cause = time.Now(), time.Now()
	s.members[number].speaker.Observe(v)
}

// runSite gives f three members that serve the VIP.
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
			v.Interface, v.Flat = "eth0", &speaker.Flat{Priority: 100, Lifetime: 2 * time.Second}
		}
		for i := range 3 {
			m := &member{site: s, number: i, heard: make(map[int]word)}
			s.members = append(s.members, m)
			parts := speaker.FlatParts{Leases: leases{m}, Announcer: quiet{}}
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
					m.say()
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
		time.Sleep(time.Second) // for words on their way
	})
	return s
}

// serving are those that the routers, or neighbours, can reach.
func (s *site) serving() (all []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.members {
		if s.flat && m.holds && m.bound || !s.flat && m.route {
			all = append(all, m.number)
		}
	}
	return all
}

// Three masters fail slowly, 0 to 3 s apart, in one instant or with flaps, while words get lost or one is cut off: somebody has the VIP all
// the while. One that is well at last has it alone.
func TestSomebodyKeepsIt(t *testing.T) {
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
							t.Errorf("seed %d: nobody had it at %v; at last %v did, want 1 alone", seed, s.gaps, alone)
							return
						}
					}
				})
			}
		}
	}
}

// Members that keep it give up one by one: the others go on, on a flat layer 2 with one of them as the holder, and who gave up keeps
// nothing. The last leaves nobody, until one is well.
func TestKeepersGiveUp(t *testing.T) {
	for _, flat := range []bool{false, true} {
		for seed := range uint64(5) {
			runSite(t, seed, flat, 0, 50*time.Millisecond, func(s *site) {
				for i := range s.members {
					s.set(i, slow("apiserver"))
				}
				for _, step := range []struct {
					who  int
					says health.Verdict
					keep []int // those that may
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
					s.set(step.who, step.says)
					time.Sleep(20 * time.Second) // which is longer than any is held down
					got := s.serving()
					if flat && (len(got) != min(len(step.keep), 1) || len(got) == 1 && !slices.Contains(step.keep, got[0])) || !flat && !slices.Equal(got, step.keep) {
						t.Errorf("flat %t, seed %d: after %d says %s, slow %t: %v, want of %v", flat, seed, step.who, step.says.State, step.says.Slow, got, step.keep)
					}
				}
			})
		}
	}
}
