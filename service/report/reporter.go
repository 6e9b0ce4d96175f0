package report

import (
	"context"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/internal/wake"
)

const (
	// look is the interval of checks for changes.
	look = time.Second
	// farewell limits the last write at the end of the process.
	farewell = time.Second
)

// pauses between two writes grow while the server refuses writes.
var pauses = wake.Backoff{Min: 5 * time.Second, Max: 5 * time.Minute}

// Options configure a Reporter.
type Options struct {
	// Node is the node's name.
	Node string
	// Owner returns the UID of the Node; not ok while there is none. Then nothing is written.
	Owner func() (uid types.UID, ok bool)
	// Fingerprint returns a value that changes whenever the result of State may change. It must be cheap.
	Fingerprint func() any
	// State returns the state of the node.
	State func() v1alpha1.NodeState
	// Apply writes the object.
	Apply func(context.Context, *v1alpha1.NodeStatus) error
}

// Reporter writes the NodeStatus of a node.
type Reporter struct {
	opts Options

	fingerprint any
	looks       int // number of checks of the state still to make
	after       time.Time
	failures    int // of writes, in a row
	// mend is when edits by other clients may be reverted; reverts counts those in a row.
	mend    time.Time
	reverts int

	mu    sync.Mutex
	wrote *v1alpha1.NodeStatus // the last write; nil if it failed, or if the server has another object
}

// New returns a Reporter. It writes nothing until it runs.
func New(o Options) *Reporter { return &Reporter{opts: o} }

// Seen handles the server's present object; nil if there is none. If it differs from the last write, the reporter writes again.
func (r *Reporter) Seen(s *v1alpha1.NodeStatus) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s == nil || r.wrote == nil || !equality.Semantic.DeepEqual(s.Status, r.wrote.Status) ||
		!equality.Semantic.DeepEqual(s.OwnerReferences, r.wrote.OwnerReferences) {
		r.wrote = nil
	}
}

// Run writes the state of the node until ctx is done, and then once more, to report the withdrawals at the end.
func (r *Reporter) Run(ctx context.Context) {
	wake.Loop(ctx, nil, func() time.Time {
		r.step(ctx, time.Now())
		return time.Now().Add(look)
	})
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	_ = r.write(ctx) // no retry at the end
}

// step writes changes, unless a pause has not ended.
func (r *Reporter) step(ctx context.Context, now time.Time) {
	uid, exists := r.opts.Owner()
	r.mu.Lock()
	lacks := r.wrote == nil || r.wrote.OwnerReferences[0].UID != uid
	r.mu.Unlock()
	if next := r.opts.Fingerprint(); !reflect.DeepEqual(r.fingerprint, next) {
		// Peers receive routes shortly after their session is up or a Service is announced, so check twice.
		r.fingerprint, r.looks = next, 2
	}
	spoiled := r.looks == 0
	if !exists || now.Before(r.after) || spoiled && (!lacks || now.Before(r.mend)) {
		return
	}
	r.looks = max(0, r.looks-1)
	if err := r.write(ctx); err != nil {
		r.looks = max(1, r.looks)
		r.failures++
		r.after = now.Add(pauses.After(r.failures))
		return
	}
	r.failures, r.after = 0, now.Add(pauses.Min)
	if spoiled {
		if now.Sub(r.mend) > pauses.Max {
			r.reverts = 0
		}
		r.reverts++
		r.mend = now.Add(pauses.After(r.reverts))
	}
}

// write writes the state of the node, unless the server has it already.
func (r *Reporter) write(ctx context.Context) error {
	uid, exists := r.opts.Owner()
	if !exists {
		return nil
	}
	// The Node owns the object.
	next := &v1alpha1.NodeStatus{ObjectMeta: metav1.ObjectMeta{
		Name: r.opts.Node, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: r.opts.Node, UID: uid}},
	}, Status: r.opts.State()}
	r.mu.Lock()
	known := equality.Semantic.DeepEqual(r.wrote, next)
	r.wrote = next // versions seen from now on are this one or later
	r.mu.Unlock()
	if known {
		return nil
	}
	err := r.opts.Apply(ctx, next.DeepCopy())
	if err != nil {
		r.Seen(nil)
	}
	return err
}
