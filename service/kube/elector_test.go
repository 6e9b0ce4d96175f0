package kube

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// leaseOf returns a Lease with a holder.
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
		{"deleted", view{deleted: true, received: start}, 5.9, idle, 6},
		{"deleted long ago", view{deleted: true, received: start}, 6, create, 6},
		{"given back", view{lease: leaseOf("", 6), received: start}, 1, take, 1},
		{"never held", view{lease: &coordinationv1.Lease{}, received: start}, 1, take, 1},
		{"taken without an answer", view{lease: leaseOf("me", 6), received: start}, 1, take, 1},
		{"another's", view{lease: leaseOf("you", 6), received: start}, 5.9, idle, 6},
		{"another's, over", view{lease: leaseOf("you", 6), received: start}, 6, take, 6},
		{"another's, with patience", view{lease: leaseOf("you", 6), received: start, patience: 500 * time.Millisecond}, 6.4, idle, 6.5},
		{"another's that says nothing", view{lease: leaseOf("you", 0), received: start}, 5.9, idle, 6},
		{"another's that would last forever", view{lease: leaseOf("you", 1<<30), received: start}, 59, idle, 60},
		{"mine, fresh", view{lease: leaseOf("me", 6), received: at(1), sent: start}, 1, idle, 2},
		{"mine, to be renewed", view{lease: leaseOf("me", 6), received: at(1), sent: start}, 2, renew, 4},
		{"mine, almost over", view{lease: leaseOf("me", 6), received: at(1), sent: start}, 3.9, renew, 4},
		{"mine, over", view{lease: leaseOf("me", 6), received: at(1), sent: start}, 4, lose, 4},
		{"mine, and another's", view{lease: leaseOf("you", 6), received: at(1), sent: start}, 1, lose, 1},
		{"mine, and given back", view{lease: leaseOf("", 6), received: at(1), sent: start}, 1, lose, 1},
		{"mine, and gone", view{received: at(1), sent: start}, 1, lose, 1},
	} {
		c.view.me = "me"
		if do, again := c.view.decide(at(c.now)); do != c.do || !again.Equal(at(c.again)) {
			t.Errorf("%s: %v, again at %v, want %v at %v", c.name, do, again.Sub(start), c.do, at(c.again).Sub(start))
		}
	}
}

// TestElection exposes a Lease to faults.
func TestElection(t *testing.T) {
	type scenario = func(t *testing.T, tr *trial, seats []*seat, leave []func(), first int)
	fault := func(of func(*seat)) scenario { // of the holder's requests
		return func(t *testing.T, tr *trial, seats []*seat, _ []func(), first int) {
			tr.set(func() { of(seats[first]) })
			time.Sleep(leaseWorks + 100*time.Millisecond)
			if n := tr.worker(); n == first {
				t.Errorf("%d works without an accepted renewal", n)
			}
			tr.back(seats[first])
			time.Sleep(leaseLasts + leasePatience)
			tr.mustWork()
		}
	}
	for name, test := range map[string]scenario{
		"a living holder keeps it": func(t *testing.T, tr *trial, seats []*seat, _ []func(), first int) {
			var before, asked int
			tr.set(func() { before = tr.asked })
			time.Sleep(time.Hour)
			tr.set(func() { asked = tr.asked - before })
			if tr.worker() != first || tr.terms != 1 {
				t.Errorf("%d works after %d terms, want %d in its first", tr.worker(), tr.terms, first)
			}
			tr.set(func() {
				for n, s := range seats {
					if want := fmt.Sprintf("n%d", first); s.holder != want {
						t.Errorf("elector %d reports the holder %q, want %q", n, s.holder, want)
					}
				}
			})
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
				t.Errorf("%d still works, although it cannot know that it is the holder", first)
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
			time.Sleep(leaseWorks + leaseRetry + time.Second) // a pending request may end only then
			tr.mustWork()
		},
		"deleted": func(t *testing.T, tr *trial, _ []*seat, _ []func(), _ int) {
			tr.set(func() { tr.put(nil) })
			time.Sleep(leaseLasts + leasePatience + time.Second)
			tr.mustWork()
		},
		"taken by force": func(t *testing.T, tr *trial, _ []*seat, _ []func(), first int) {
			tr.set(func() { tr.put(leaseOf("admin", 30)) })
			time.Sleep(100 * time.Millisecond)
			if n := tr.worker(); n >= 0 {
				t.Errorf("%d works", n)
			}
			time.Sleep(31 * time.Second)
			tr.mustWork()
		},
		"requests hang": fault(func(s *seat) { s.hung = true }),
		"answers lost":  fault(func(s *seat) { s.late = true }),
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
					t.Fatal("no elector works")
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

// TestElectionsAtRandom lets electors join, leave and lose their server. No two may
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
				t.Errorf("seed %d: no elector works at the end", seed)
			}
			if tr.terms < 5 {
				t.Errorf("seed %d: only %d terms, too few for a test", seed, tr.terms)
			}
			for _, l := range leave {
				l()
			}
		})
	}
}
