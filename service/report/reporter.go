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
	// look is the time between two looks at what may have changed.
	look = time.Second
	// Between two writes are least or, as long as the server takes none, ever more up to most.
	least, most = 5 * time.Second, 5 * time.Minute
	// farewell is how long the end of the process waits for the last write.
	farewell = time.Second
)

// Options say what is written, and to whom.
type Options struct {
	// Node is the node's name.
	Node string
	// Owner is the Node of that name; not ok while there is none, and nothing is written.
	Owner func() (uid types.UID, ok bool)
	// Fingerprint is cheap to make, and is another if State may be.
	Fingerprint func() any
	// State is how the node stands.
	State func() v1alpha1.NodeState
	// Apply writes it.
	Apply func(context.Context, *v1alpha1.NodeStatus) error
}

// Reporter writes the NodeStatus of a node.
type Reporter struct {
	opts Options

	fingerprint any
	looks       int // at the state, that are still to be made
	after       time.Time
	pause       time.Duration
	// mend is when what somebody else has changed may be written again, and calm what has to pass after that, ever more.
	mend time.Time
	calm time.Duration

	mu    sync.Mutex
	wrote *v1alpha1.NodeStatus // last; nil if the server did not take it, or has another
}

// New is a Reporter, which writes nothing until it runs.
func New(o Options) *Reporter { return &Reporter{opts: o, pause: least} }

// Seen is told what the server has of the node, nil if nothing. What is not as it was written is written again.
func (r *Reporter) Seen(s *v1alpha1.NodeStatus) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s == nil || r.wrote == nil || !equality.Semantic.DeepEqual(s.Status, r.wrote.Status) ||
		!equality.Semantic.DeepEqual(s.OwnerReferences, r.wrote.OwnerReferences) {
		r.wrote = nil
	}
}

// Run writes how the node stands until ctx is done, and once more then: what is withdrawn by that time.
func (r *Reporter) Run(ctx context.Context) {
	wake.Loop(ctx, nil, func() time.Time {
		r.step(ctx, time.Now())
		return time.Now().Add(look)
	})
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	_ = r.write(ctx) // there is nobody left to try again
}

// step writes what has changed, unless that has to wait.
func (r *Reporter) step(ctx context.Context, now time.Time) {
	uid, exists := r.opts.Owner()
	r.mu.Lock()
	lacks := r.wrote == nil || r.wrote.OwnerReferences[0].UID != uid
	r.mu.Unlock()
	if next := r.opts.Fingerprint(); !reflect.DeepEqual(r.fingerprint, next) {
		// Peers are sent routes a little after a session is up, or Services are announced.
		r.fingerprint, r.looks = next, 2
	}
	spoiled := r.looks == 0
	if !exists || now.Before(r.after) || spoiled && (!lacks || now.Before(r.mend)) {
		return
	}
	r.looks = max(0, r.looks-1)
	if err := r.write(ctx); err != nil {
		r.looks = max(1, r.looks)
		r.after, r.pause = now.Add(r.pause), min(2*r.pause, most)
		return
	}
	r.after, r.pause = now.Add(least), least
	if spoiled {
		if now.Sub(r.mend) > most {
			r.calm = least
		}
		r.mend, r.calm = now.Add(r.calm), min(2*r.calm, most)
	}
}

// write writes how the node stands, if the server does not have that.
func (r *Reporter) write(ctx context.Context) error {
	uid, exists := r.opts.Owner()
	if !exists {
		return nil
	}
	// The object goes with its Node.
	next := &v1alpha1.NodeStatus{ObjectMeta: metav1.ObjectMeta{
		Name: r.opts.Node, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: r.opts.Node, UID: uid}},
	}, Status: r.opts.State()}
	r.mu.Lock()
	known := equality.Semantic.DeepEqual(r.wrote, next)
	r.wrote = next // what is seen from now on is this, or a later one
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
