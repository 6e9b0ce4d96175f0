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
var (
	// retries follow failed writes.
	retries = wake.Backoff{Min: 100 * time.Millisecond, Max: 30 * time.Second}
	// repairs follow edits by other clients.
	repairs = wake.Backoff{Min: time.Second, Max: time.Minute}
)

const (
	// spoiledPeace is the time without edits by other clients after which repairs start at their minimum again.
	spoiledPeace = 10 * time.Minute
	// unannouncedDelay delays "not announced": during a move the new holder may report up to five seconds after the old
	// one.
	unannouncedDelay = 6 * time.Second
	// Statuses that differ only in the announcing nodes are written in portions, one every portionEvery.
	portion, portionEvery = 20, 200 * time.Millisecond
)

// delivery is the progress of writing one status.
type delivery struct {
	waiting   bool // it is in state.waiting
	busy      bool // a write is pending
	awaiting  bool // it is in nodes.waiting: its announcing nodes have changed
	failures  int  // in a row
	after     time.Time
	notBefore time.Time // "not announced" is not written earlier

	wrote   *corev1.Service // the status after the last successful write
	spoiled int             // number of edits of that by other clients
	last    time.Time       // time of the last edit
}

// enqueue schedules the writing of a Service's status.
func (st *state) enqueue(key string, e *entry) {
	if !e.waiting {
		e.waiting = true
		st.waiting = append(st.waiting, key)
	}
}

// portions schedules the next portion of awaiting statuses and returns when to call it again. All at once would overload
// the server whenever a node that announces ten thousand Services leaves and returns.
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
		case left == 0 || now.Before(e.notBefore):
			return false
		case e.notBefore.IsZero() && st.lost(key, e):
			e.notBefore = now.Add(unannouncedDelay)
			return false
		}
		left--
		e.awaiting, e.notBefore = false, time.Time{}
		st.enqueue(key, e)
		return true
	})
	n.next = now.Add(portionEvery)
	if len(n.waiting) == 0 {
		return time.Time{}
	}
	return n.next
}

// lost reports whether the status of a Service names announcing nodes, but no node announces it any more.
func (st *state) lost(key string, e *entry) bool {
	present, want := announcedOf(e.service), st.announced(key)
	return present != nil && present.Status == metav1.ConditionTrue && want != nil && want.Status == metav1.ConditionFalse
}

// write is a status to write, with its events.
type write struct {
	key    string
	read   *corev1.Service
	status corev1.ServiceStatus
	events []kube.Event
	// assigns reports that it has new addresses.
	assigns bool
	// refusal is the new reason of an unmet request; empty if there is none or it was known.
	refusal string
}

// due returns at most n writes to make now, and when the next may be due.
func (st *state) due(now time.Time, n int) (writes []write, next time.Time) {
	keep := st.waiting[:0]
	for _, key := range st.waiting {
		e := st.entries[key]
		switch {
		case e == nil || !e.waiting:
		case e.busy: // done decides it again
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

// done handles the end of a write: the written version of the Service, or an error. latest is the newest known version.
func (st *state) done(w *write, err error, written, latest *corev1.Service, now time.Time) {
	e := st.entries[w.key]
	if e == nil || e.service.UID != w.read.UID {
		return
	}
	e.busy = false
	st.changed[w.key] = true
	switch {
	case err == nil:
		e.failures, e.wrote = 0, &corev1.Service{Status: written.Status}
		if e.service.ResourceVersion == w.read.ResourceVersion {
			e.service = written
		}
	case apierrors.IsNotFound(err):
		st.remove(w.key)
	default: // the write may have succeeded nevertheless
		e.failures++
		e.after = now.Add(retries.After(e.failures))
		if apierrors.IsConflict(err) && latest != nil && latest.UID == e.service.UID {
			e.service = latest
		}
	}
}

// observeVersion delays the next write if another client has edited the written status in version s.
func (e *entry) observeVersion(s *corev1.Service, now time.Time) {
	if e.wrote == nil || e.busy || !e.intact(e.service) || e.intact(s) || s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return
	}
	if now.Sub(e.last) > spoiledPeace {
		e.spoiled = 0
	}
	e.last = now
	e.spoiled++
	e.after = now.Add(repairs.After(e.spoiled))
}

// intact reports whether s still has the written status.
func (e *entry) intact(s *corev1.Service) bool {
	return slices.Equal(service.StatusAddresses(s), service.StatusAddresses(e.wrote)) &&
		sameCondition(conditionOf(s), conditionOf(e.wrote)) && sameCondition(announcedOf(s), announcedOf(e.wrote))
}
