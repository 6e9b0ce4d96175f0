package report

import (
	"context"
	"reflect"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/wake"
)

const (
	// look is the time between two looks at what may have changed.
	look = time.Second
	// Between two writes are least or, as long as the server takes none, ever more up to most.
	least, most = 5 * time.Second, 5 * time.Minute
	// farewell is how long the end of the process waits for the last write.
	farewell = time.Second
)

// Options say what is told, and to whom.
type Options struct {
	// Node is the node's name.
	Node string
	// Owner is the Node of that name; not ok while there is none, and nothing is told.
	Owner func() (uid types.UID, ok bool)
	// Sketch is cheap to make, and is another if State may be.
	Sketch func() any
	// State is how the node stands.
	State func() v1alpha1.NodeState
	// Apply writes it.
	Apply func(context.Context, *v1alpha1.NodeStatus) error
}

// Reporter tells of a node.
type Reporter struct {
	opts Options

	sketch any
	looks  int // at the state, that are still to be made
	after  time.Time
	pause  time.Duration

	mu   sync.Mutex
	told *v1alpha1.NodeStatus // that the server took; nil if it has none
}

// New is a Reporter, which tells nothing until it runs.
func New(o Options) *Reporter { return &Reporter{opts: o, pause: least} }

// Lost is told that the server has none of the node's, so that it is written again.
func (r *Reporter) Lost() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = nil
}

// Run tells of the node until ctx is done, and once more then: of what is withdrawn by that time.
func (r *Reporter) Run(ctx context.Context) {
	wake.Loop(ctx, nil, func() time.Time {
		r.step(ctx, time.Now())
		return time.Now().Add(look)
	})
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	_ = r.tell(ctx) // there is nobody left to try again
}

// step tells what has changed, unless that has to wait.
func (r *Reporter) step(ctx context.Context, now time.Time) {
	uid, exists := r.opts.Owner()
	r.mu.Lock()
	lacks := r.told == nil || len(r.told.OwnerReferences) != 1 || r.told.OwnerReferences[0].UID != uid
	r.mu.Unlock()
	if next := r.opts.Sketch(); !reflect.DeepEqual(r.sketch, next) {
		// Peers are sent routes a little after a session is up, or Services are announced.
		r.sketch, r.looks = next, 2
	}
	if !exists || now.Before(r.after) || r.looks == 0 && !lacks {
		return
	}
	r.looks = max(0, r.looks-1)
	if err := r.tell(ctx); err != nil {
		r.looks = max(1, r.looks)
		r.after, r.pause = now.Add(r.pause), min(2*r.pause, most)
		return
	}
	r.after, r.pause = now.Add(least), least
}

// tell writes how the node stands, if the server does not know.
func (r *Reporter) tell(ctx context.Context) error {
	uid, exists := r.opts.Owner()
	if !exists {
		return nil
	}
	// The object goes with its Node.
	next := &v1alpha1.NodeStatus{ObjectMeta: metav1.ObjectMeta{
		Name: r.opts.Node, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: r.opts.Node, UID: uid}},
	}, Status: r.opts.State()}
	r.mu.Lock()
	known := reflect.DeepEqual(r.told, next)
	r.mu.Unlock()
	if known {
		return nil
	}
	if err := r.opts.Apply(ctx, next.DeepCopy()); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = next
	return nil
}
