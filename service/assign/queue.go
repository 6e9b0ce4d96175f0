package assign

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/internal/wake"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/kube"
)

// Pauses between writes of one status.
const (
	// A write that the server did not take is repeated after a pause that grows.
	retryFirst, retryLast = 100 * time.Millisecond, 30 * time.Second
	// Where somebody else changes what the writer has written, it is written again
	// after a pause that grows, until there is peace for a while.
	spoiledFirst, spoiledLast, spoiledPeace = time.Second, time.Minute, 10 * time.Minute
)

const (
	// patience is how long nobody has to announce a Service before that is told: where an address moves, who has
	// it tells so up to five seconds after who had it.
	patience = 6 * time.Second
	// Of the statuses that differ in who announces alone, portion are written every portionEvery.
	portion, portionEvery = 20, 200 * time.Millisecond
)

// delivery is how the writing of one status goes on.
type delivery struct {
	waiting  bool // it is among those of the state
	busy     bool // a write is under way
	awaiting bool // it is among those of the nodes, as others announce it
	failures int  // in a row
	after    time.Time
	patience time.Time // until when that nobody announces it is not told

	wrote   *corev1.Service // its status after the last write that the server took
	spoiled int             // how often somebody else changed that
	last    time.Time       // when that was
}

// enqueue has the status of a Service written.
func (st *state) enqueue(key string, e *entry) {
	if !e.waiting {
		e.waiting = true
		st.waiting = append(st.waiting, key)
	}
}

// await has the status of a Service written because others announce it, when that is due.
func (st *state) await(key string, e *entry) {
	if !e.awaiting {
		e.awaiting = true
		st.nodes.waiting = append(st.nodes.waiting, key)
	}
}

// portions has some of those written that are waiting, and returns when to look again. All at once they would keep a
// server busy whenever a node that announces ten thousand leaves and returns.
func (st *state) portions(now time.Time) time.Time {
	n := st.nodes
	switch {
	case len(n.waiting) == 0:
		return time.Time{}
	case now.Before(n.next):
		return n.next
	}
	left := portion
	n.waiting = slices.DeleteFunc(n.waiting, func(key string) bool {
		e := st.entries[key]
		switch {
		case e == nil || !e.awaiting:
			return true
		case left == 0 || now.Before(e.patience):
			return false
		case e.patience.IsZero() && st.lost(key, e):
			e.patience = now.Add(patience)
			return false
		}
		left--
		e.awaiting, e.patience = false, time.Time{}
		st.enqueue(key, e)
		return true
	})
	n.next = now.Add(portionEvery)
	if len(n.waiting) == 0 {
		return time.Time{}
	}
	return n.next
}

// lost is whether somebody announces a Service by its status, and nobody any more.
func (st *state) lost(key string, e *entry) bool {
	is, want := announcedOf(e.service), st.announced(key)
	return is != nil && is.Status == metav1.ConditionTrue && want != nil && want.Status == metav1.ConditionFalse
}

// write is a status to be written, and what to tell of it.
type write struct {
	key    string
	read   *corev1.Service
	status corev1.ServiceStatus
	events []kube.Event
	// assigns: it has addresses that the Service had not.
	assigns bool
	// refusal is why the Service lacks something, empty if it does not or that was known.
	refusal string
}

// due are the writes to be made now, n at most, and when the next may be due.
func (st *state) due(now time.Time, n int) (writes []write, next time.Time) {
	keep := st.waiting[:0]
	for _, key := range st.waiting {
		e := st.entries[key]
		if e == nil || !e.waiting {
			continue
		}
		switch {
		case e.busy: // its end looks again
			keep = append(keep, key)
		case now.Before(e.after):
			keep = append(keep, key)
			next = wake.Earlier(next, e.after)
		case len(writes) == n:
			keep = append(keep, key)
		default:
			e.waiting, e.busy = false, true
			writes = append(writes, st.statusWrite(key, e, now))
		}
	}
	st.waiting = slices.Clip(keep)
	return writes, next
}

// done is told of the end of a write, with the Service as it is then or an error,
// and with the newest version that is known.
func (st *state) done(w *write, err error, is, latest *corev1.Service, now time.Time) {
	e := st.entries[w.key]
	if e == nil || e.service.UID != w.read.UID {
		return
	}
	e.busy = false
	st.changed[w.key] = true
	switch {
	case err == nil:
		e.failures, e.wrote = 0, &corev1.Service{Status: is.Status}
		if e.service.ResourceVersion == w.read.ResourceVersion {
			e.service = is
		}
	case apierrors.IsNotFound(err):
		st.remove(w.key)
	default: // perhaps it was taken, though
		e.retry(now)
		if apierrors.IsConflict(err) && latest != nil && latest.UID == e.service.UID {
			e.service = latest
		}
	}
}

func (d *delivery) retry(now time.Time) {
	d.after = now.Add(min(retryFirst<<min(d.failures, 16), retryLast))
	d.failures++
}

// observeVersion takes in a newer version, in which somebody else may have changed what
// was written.
func (e *entry) observeVersion(s *corev1.Service, now time.Time) {
	if e.wrote == nil || e.busy || !e.intact(e.service) || e.intact(s) || s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return
	}
	if now.Sub(e.last) > spoiledPeace {
		e.spoiled = 0
	}
	e.last = now
	e.after = now.Add(min(spoiledFirst<<min(e.spoiled, 16), spoiledLast))
	e.spoiled++
}

// intact reports whether s has what was written.
func (e *entry) intact(s *corev1.Service) bool {
	return slices.Equal(service.StatusAddresses(s), service.StatusAddresses(e.wrote)) &&
		sameCondition(conditionOf(s), conditionOf(e.wrote)) && sameCondition(announcedOf(s), announcedOf(e.wrote))
}
