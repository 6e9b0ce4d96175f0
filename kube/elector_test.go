package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// leaseOf is a Lease that somebody holds.
func leaseOf(holder string, seconds int32) *coordinationv1.Lease {
	return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds}}
}

func TestDecide(t *testing.T) {
	start := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	for _, c := range []struct {
		name  string
		view  view
		now   float64
		do    step
		again float64
	}{
		{"none there", view{}, 1, create, 1},
		{"deleted", view{deleted: true, heard: start}, 5.9, idle, 6},
		{"deleted long ago", view{deleted: true, heard: start}, 6, create, 6},
		{"given back", view{lease: leaseOf("", 6), heard: start}, 1, take, 1},
		{"never held", view{lease: &coordinationv1.Lease{}, heard: start}, 1, take, 1},
		{"taken without an answer", view{lease: leaseOf("me", 6), heard: start}, 1, take, 1},
		{"another's", view{lease: leaseOf("you", 6), heard: start}, 5.9, idle, 6},
		{"another's, over", view{lease: leaseOf("you", 6), heard: start}, 6, take, 6},
		{"another's, with patience", view{lease: leaseOf("you", 6), heard: start, patience: 500 * time.Millisecond}, 6.4, idle, 6.5},
		{"another's that says nothing", view{lease: leaseOf("you", 0), heard: start}, 5.9, idle, 6},
		{"another's that would last forever", view{lease: leaseOf("you", 1<<30), heard: start}, 59, idle, 60},
		{"mine, fresh", view{lease: leaseOf("me", 6), heard: at(1), sent: start}, 1, idle, 2},
		{"mine, to be renewed", view{lease: leaseOf("me", 6), heard: at(1), sent: start}, 2, renew, 4},
		{"mine, almost over", view{lease: leaseOf("me", 6), heard: at(1), sent: start}, 3.9, renew, 4},
		{"mine, over", view{lease: leaseOf("me", 6), heard: at(1), sent: start}, 4, lose, 4},
		{"mine, and another's", view{lease: leaseOf("you", 6), heard: at(1), sent: start}, 1, lose, 1},
		{"mine, and given back", view{lease: leaseOf("", 6), heard: at(1), sent: start}, 1, lose, 1},
		{"mine, and gone", view{heard: at(1), sent: start}, 1, lose, 1},
	} {
		c.view.me = "me"
		if do, again := c.view.decide(at(c.now)); do != c.do || !again.Equal(at(c.again)) {
			t.Errorf("%s: %v, again at %v, want %v at %v", c.name, do, again.Sub(start), c.do, at(c.again).Sub(start))
		}
	}
}

// court is a server with one Lease, in memory and virtual time.
type court struct {
	mu      sync.Mutex
	version int
	lease   *coordinationv1.Lease
	seats   []*seat
	random  *rand.Rand
	asked   int
}

// seat is where one elector hears from the court and speaks to it.
type seat struct {
	court *court
	news  chan *coordinationv1.Lease
	away  bool // nothing goes through, either way
	late  bool // what is asked is done after a second, and no answer comes
}

var errAway = errors.New("the server is away")

func (c *court) put(lease *coordinationv1.Lease) *coordinationv1.Lease {
	c.version++
	c.lease = lease
	if lease != nil {
		lease.ResourceVersion = strconv.Itoa(c.version)
	}
	for _, s := range c.seats {
		if !s.away {
			s.tell(lease)
		}
	}
	return lease
}

func (s *seat) tell(lease *coordinationv1.Lease) {
	select {
	case <-s.news: // a newer one is what counts
	default:
	}
	s.news <- lease
}

// ask does something at the server, or not.
func (s *seat) ask(ctx context.Context, do func() (*coordinationv1.Lease, error)) (*coordinationv1.Lease, error) {
	c := s.court
	c.mu.Lock()
	c.asked++
	away, late := s.away, s.late
	delay := time.Duration(c.random.IntN(50)) * time.Millisecond
	c.mu.Unlock()
	switch {
	case away:
		<-ctx.Done()
		return nil, errAway
	case late:
		time.AfterFunc(time.Second, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			_, _ = do() // nobody hears of it
		})
		<-ctx.Done()
		return nil, errAway
	}
	time.Sleep(delay)
	c.mu.Lock()
	defer c.mu.Unlock()
	return do()
}

func (s *seat) create(ctx context.Context, me string) (*coordinationv1.Lease, error) {
	return s.ask(ctx, func() (*coordinationv1.Lease, error) {
		if s.court.lease != nil {
			return nil, errors.New("exists")
		}
		return s.court.put(leaseOf(me, int32(leaseLasts/time.Second))), nil
	})
}

func (s *seat) take(ctx context.Context, me string, read *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	return s.ask(ctx, func() (*coordinationv1.Lease, error) {
		if s.court.lease == nil || s.court.lease.ResourceVersion != read.ResourceVersion {
			return nil, errors.New("conflict")
		}
		return s.court.put(leaseOf(me, int32(leaseLasts/time.Second))), nil
	})
}

func (s *seat) renew(ctx context.Context, me string) (*coordinationv1.Lease, error) {
	return s.ask(ctx, func() (*coordinationv1.Lease, error) {
		if s.court.lease == nil || *s.court.lease.Spec.HolderIdentity != me {
			return nil, errLost
		}
		now := metav1.NowMicro()
		lease := s.court.lease.DeepCopy()
		lease.Spec.RenewTime = &now
		return s.court.put(lease), nil
	})
}

func (s *seat) release(ctx context.Context, me string) error {
	_, err := s.ask(ctx, func() (*coordinationv1.Lease, error) {
		if s.court.lease == nil || *s.court.lease.Spec.HolderIdentity != me {
			return nil, errLost
		}
		return s.court.put(leaseOf("", 1)), nil
	})
	return err
}

// trial is electors before a court.
type trial struct {
	*court
	t *testing.T

	workers sync.Mutex
	working map[int]bool
	terms   int
}

func newTrial(t *testing.T, seed uint64) *trial {
	return &trial{court: &court{random: rand.New(rand.NewPCG(seed, 1))}, t: t, working: make(map[int]bool)}
}

// join has an elector take part until the function that is returned is called.
func (tr *trial) join(n int) (s *seat, leave func()) {
	s = &seat{court: tr.court, news: make(chan *coordinationv1.Lease, 1)}
	tr.mu.Lock()
	tr.seats = append(tr.seats, s)
	s.news <- tr.lease
	patience := time.Duration(tr.random.IntN(1000)) * time.Millisecond
	tr.mu.Unlock()
	log := slog.New(slog.DiscardHandler)
	l := &elector{
		view: view{me: fmt.Sprintf("n%d_%d", n, len(tr.seats)), patience: patience}, leases: s, log: log, trouble: newTrouble(log), news: s.news,
		work: func(ctx context.Context) {
			tr.enter(n)
			<-ctx.Done()
			time.Sleep(50 * time.Millisecond) // what is under way comes to its end
			tr.leave(n)
		},
	}
	ctx, cancel := context.WithCancel(tr.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.run(ctx)
	}()
	return s, func() { cancel(); <-done }
}

func (tr *trial) enter(n int) {
	tr.workers.Lock()
	defer tr.workers.Unlock()
	if len(tr.working) > 0 {
		tr.t.Errorf("%d works beside %v", n, tr.working)
	}
	tr.working[n] = true
	tr.terms++
}

func (tr *trial) leave(n int) {
	tr.workers.Lock()
	defer tr.workers.Unlock()
	delete(tr.working, n)
}

// worker is who works, -1 if nobody does.
func (tr *trial) worker() int {
	tr.workers.Lock()
	defer tr.workers.Unlock()
	for n := range tr.working {
		return n
	}
	return -1
}

func (tr *trial) set(change func()) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	change()
}

// back ends what keeps a seat from the court, which tells it how things are.
func (tr *trial) back(s *seat) {
	tr.set(func() { s.away, s.late = false, false; s.tell(tr.lease) })
}

// TestElection follows the writer's Lease through what may happen to it.
func TestElection(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, tr *trial, seats []*seat, leave []func(), first int){
		"nobody takes it from who is there": func(t *testing.T, tr *trial, _ []*seat, _ []func(), first int) {
			var before, asked int
			tr.set(func() { before = tr.asked })
			time.Sleep(time.Hour)
			tr.set(func() { asked = tr.asked - before })
			if tr.worker() != first || tr.terms != 1 {
				t.Errorf("%d works after %d terms, want %d in its first", tr.worker(), tr.terms, first)
			}
			if asked > 1801 {
				t.Errorf("%d requests in an hour, want the holder's 1800", asked)
			}
		},
		"given back": func(t *testing.T, tr *trial, _ []*seat, leave []func(), first int) {
			leave[first]()
			time.Sleep(time.Second)
			if n := tr.worker(); n == first || n < 0 {
				t.Errorf("%d works", n)
			}
		},
		"holder cut off": func(t *testing.T, tr *trial, seats []*seat, _ []func(), first int) {
			tr.set(func() { seats[first].away = true })
			time.Sleep(leaseWorks + 100*time.Millisecond)
			if tr.worker() == first {
				t.Errorf("%d works, and cannot know that it may", first)
			}
			time.Sleep(leaseLasts + leasePatience - leaseWorks)
			if n := tr.worker(); n == first || n < 0 {
				t.Errorf("%d works", n)
			}
			second := tr.worker()
			tr.back(seats[first])
			time.Sleep(time.Minute)
			if tr.worker() != second {
				t.Errorf("%d works, want %d as before", tr.worker(), second)
			}
		},
		"server away": func(t *testing.T, tr *trial, seats []*seat, _ []func(), _ int) {
			tr.set(func() {
				for _, s := range seats {
					s.away = true
				}
			})
			time.Sleep(time.Hour)
			if n := tr.worker(); n >= 0 {
				t.Errorf("%d works", n)
			}
			for _, s := range seats {
				tr.back(s)
			}
			time.Sleep(leaseWorks + leaseRetry + time.Second) // a request may be under way that does not end before
			if tr.worker() < 0 {
				t.Error("nobody works")
			}
		},
		"deleted": func(t *testing.T, tr *trial, _ []*seat, _ []func(), _ int) {
			tr.set(func() { tr.put(nil) })
			time.Sleep(leaseLasts + leasePatience + time.Second)
			if tr.worker() < 0 {
				t.Error("nobody works")
			}
		},
		"taken by force": func(t *testing.T, tr *trial, _ []*seat, _ []func(), first int) {
			tr.set(func() { tr.put(leaseOf("admin", 30)) })
			time.Sleep(100 * time.Millisecond)
			if n := tr.worker(); n >= 0 {
				t.Errorf("%d works", n)
			}
			time.Sleep(31 * time.Second)
			if tr.worker() < 0 {
				t.Error("nobody works")
			}
		},
		"answers lost": func(t *testing.T, tr *trial, seats []*seat, _ []func(), first int) {
			tr.set(func() { seats[first].late = true })
			time.Sleep(leaseWorks + 100*time.Millisecond)
			if n := tr.worker(); n == first {
				t.Errorf("%d works without a renewal that was taken", n)
			}
			tr.back(seats[first])
			time.Sleep(leaseLasts + leasePatience)
			if tr.worker() < 0 {
				t.Error("nobody works")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := newTrial(t, 7)
				var seats []*seat
				var leave []func()
				for n := range 5 {
					s, l := tr.join(n)
					seats, leave = append(seats, s), append(leave, l)
				}
				time.Sleep(2 * time.Second)
				first := tr.worker()
				if first < 0 {
					t.Fatal("nobody works")
				}
				test(t, tr, seats, leave, first)
				for _, s := range seats {
					tr.back(s)
				}
				for _, l := range leave {
					l()
				}
			})
		})
	}
}

// TestElectionsAtRandom has electors come, go and lose their server, and never two
// work at once.
func TestElectionsAtRandom(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			tr := newTrial(t, seed)
			random := rand.New(rand.NewPCG(seed, 2))
			seats, leave := make([]*seat, 4), make([]func(), 4)
			for n := range seats {
				seats[n], leave[n] = tr.join(n)
			}
			for range 100 {
				n := random.IntN(len(seats))
				if w := tr.worker(); w >= 0 && random.IntN(2) == 0 {
					n = w
				}
				switch random.IntN(5) {
				case 0:
					tr.set(func() { seats[n].away = true })
				case 1:
					tr.set(func() { seats[n].late = true })
				case 2:
					leave[n]()
					seats[n], leave[n] = tr.join(n)
				default:
					tr.back(seats[n])
				}
				time.Sleep(time.Duration(random.IntN(5000)) * time.Millisecond)
			}
			for _, s := range seats {
				tr.back(s)
			}
			time.Sleep(leaseLasts + leasePatience + leaseWorks)
			if tr.worker() < 0 {
				t.Errorf("seed %d: nobody works at the end", seed)
			}
			if tr.terms < 5 {
				t.Errorf("seed %d: only %d terms, so little is shown", seed, tr.terms)
			}
			for _, l := range leave {
				l()
			}
		})
	}
}
