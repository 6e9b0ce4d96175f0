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
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/testenv/wait"
)

// court is a server with one Lease, in memory and virtual time.
type court struct {
	mu      sync.Mutex
	version int
	lease   *coordinationv1.Lease
	seats   []*seat
	random  *rand.Rand
	asked   int
}

// seat is the connection of one elector with the court.
type seat struct {
	court   *court
	arrived chan *coordinationv1.Lease
	away    bool   // no messages pass
	late    bool   // requests succeed late, without an answer
	hung    bool   // requests ignore their context
	holder  string // as its elector reports
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
	case <-s.arrived: // a newer version replaces it
	default:
	}
	s.arrived <- lease
}

// ask performs a request at the server, unless the seat is cut off.
func (s *seat) ask(ctx context.Context, do func() (*coordinationv1.Lease, error)) (*coordinationv1.Lease, error) {
	c := s.court
	c.mu.Lock()
	c.asked++
	away, late, hung := s.away, s.late, s.hung
	delay := time.Duration(c.random.IntN(50)) * time.Millisecond
	c.mu.Unlock()
	switch {
	case hung:
		time.Sleep(time.Minute)
		return nil, errAway
	case away:
		<-ctx.Done()
		return nil, errAway
	case late:
		time.AfterFunc(time.Second, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			_, _ = do() // the answer is lost
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

// trial is a court with electors.
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

// join adds an elector until leave is called.
func (tr *trial) join(n int) (s *seat, leave func()) {
	s = &seat{court: tr.court, arrived: make(chan *coordinationv1.Lease, 1)}
	tr.mu.Lock()
	tr.seats = append(tr.seats, s)
	s.arrived <- tr.lease
	patience := time.Duration(tr.random.IntN(1000)) * time.Millisecond
	tr.mu.Unlock()
	log := slog.New(slog.DiscardHandler)
	l := &elector{
		view: view{me: fmt.Sprintf("n%d_%d", n, len(tr.seats)), patience: patience}, leases: s, log: log, trouble: &trouble{log, newSaid()}, arrived: s.arrived,
		reportHolder: func(node string) { tr.set(func() { s.holder = node }) },
		work: func(ctx context.Context) {
			tr.enter(n)
			<-ctx.Done()
			time.Sleep(50 * time.Millisecond) // pending requests end
			tr.leave(n)
		},
	}
	return s, wait.Go(tr.t, l.run)
}

func (tr *trial) enter(n int) {
	tr.workers.Lock()
	defer tr.workers.Unlock()
	if len(tr.working) > 0 {
		tr.t.Errorf("%d works at the same time as %v", n, tr.working)
	}
	tr.working[n] = true
	tr.terms++
}

func (tr *trial) leave(n int) {
	tr.workers.Lock()
	defer tr.workers.Unlock()
	delete(tr.working, n)
}

// worker returns the number of the working elector; -1 if there is none.
func (tr *trial) worker() int {
	tr.workers.Lock()
	defer tr.workers.Unlock()
	for n := range tr.working {
		return n
	}
	return -1
}

// mustWork fails the test unless an elector works.
func (tr *trial) mustWork() {
	tr.t.Helper()
	if tr.worker() < 0 {
		tr.t.Error("no elector works")
	}
}

func (tr *trial) set(change func()) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	change()
}

// back reconnects a seat and sends it the present Lease.
func (tr *trial) back(s *seat) {
	tr.set(func() { s.away, s.late, s.hung = false, false, false; s.tell(tr.lease) })
}
