package kube

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// The times of a Kubernetes Lease. A holder that cannot renew stops working leaseWorks after
// it sent the last accepted renewal. Others take the Lease leaseLasts after they received
// that renewal, which is later. Between the two, pending requests of the old holder end.
//
// No process compares the clocks of two machines: the times in a Lease are for people.
const (
	leaseLasts  = 6 * time.Second
	leaseWorks  = 4 * time.Second
	leaseRenews = 2 * time.Second
	leaseRetry  = 500 * time.Millisecond
	// leasePatience is the maximum of a random delay beyond leaseLasts, so that not all
	// processes take a Lease at once.
	leasePatience = time.Second
	// leaseLongest limits the duration that a Lease states.
	leaseLongest = time.Minute
)

// errLost is the error of a request by a process that is no longer the holder.
var errLost = errors.New("another holds the Lease")

// view is the knowledge of one process about a Lease.
type view struct {
	me string
	// lease is the last received version; nil if there is none.
	lease *coordinationv1.Lease
	// received is the time of that.
	received time.Time
	// deleted means that a Lease was deleted. Its holder may not know of that yet.
	deleted bool
	// sent is when this process sent the last accepted renewal; zero if it is not the
	// holder.
	sent time.Time
	// patience is up to leasePatience, and differs between processes.
	patience time.Duration
}

// step is an action on a Lease.
type step int

const (
	idle step = iota
	create
	take
	renew
	lose // stop working: another process is the holder, or may soon be
)

// decide returns the next step, and when to decide again if the step is idle.
func (v *view) decide(now time.Time) (do step, again time.Time) {
	holder := v.holder()
	switch works := v.sent.Add(leaseWorks); {
	case !v.sent.IsZero() && (holder != v.me || !now.Before(works)):
		return lose, now
	case !v.sent.IsZero() && !now.Before(v.sent.Add(leaseRenews)):
		return renew, works
	case !v.sent.IsZero():
		return idle, v.sent.Add(leaseRenews)
	case v.lease == nil && !v.deleted:
		return create, now
	case v.lease != nil && (holder == "" || holder == v.me): // released, or a take without an answer succeeded
		return take, now
	}
	if over := v.received.Add(v.lasts() + v.patience); now.Before(over) {
		return idle, over
	}
	if v.lease == nil {
		return create, now
	}
	return take, now
}

// holder returns the identity of the holder; empty if there is none.
func (v *view) holder() string {
	if v.lease == nil || v.lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *v.lease.Spec.HolderIdentity
}

// lasts returns how long the Lease lasts without a renewal.
func (v *view) lasts() time.Duration {
	if v.lease == nil || v.lease.Spec.LeaseDurationSeconds == nil || *v.lease.Spec.LeaseDurationSeconds <= 0 {
		return leaseLasts
	}
	return min(time.Duration(*v.lease.Spec.LeaseDurationSeconds)*time.Second, leaseLongest)
}

// leases sends requests about one Lease.
type leases interface {
	// create creates the Lease with me as its holder.
	create(ctx context.Context, me string) (*coordinationv1.Lease, error)
	// take makes me the holder, if the Lease still has the version read.
	take(ctx context.Context, me string, read *coordinationv1.Lease) (*coordinationv1.Lease, error)
	// renew extends the Lease, and fails with errLost if me is not the holder.
	renew(ctx context.Context, me string) (*coordinationv1.Lease, error)
	// release removes the holder, if that is me.
	release(ctx context.Context, me string) error
}

// leaseClient implements leases with an API server.
type leaseClient struct {
	client          rest.Interface
	namespace, name string
}

func (c *leaseClient) create(ctx context.Context, me string) (*coordinationv1.Lease, error) {
	lease := new(coordinationv1.Lease)
	err := c.client.Post().Namespace(c.namespace).Resource("leases").Body(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: c.name},
		Spec:       heldBy(me, 0),
	}).Do(ctx).Into(lease)
	return lease, err
}

func (c *leaseClient) take(ctx context.Context, me string, read *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	transitions := int32(1)
	if read.Spec.LeaseTransitions != nil {
		transitions = *read.Spec.LeaseTransitions + 1
	}
	return c.patch(ctx, types.MergePatchType, map[string]any{
		"metadata": map[string]any{"resourceVersion": read.ResourceVersion},
		"spec":     heldBy(me, transitions),
	})
}

// heldBy returns the specification of a Lease that me takes now.
func heldBy(me string, transitions int32) coordinationv1.LeaseSpec {
	now, seconds := metav1.NowMicro(), int32(leaseLasts/time.Second)
	return coordinationv1.LeaseSpec{
		HolderIdentity: &me, LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now, LeaseTransitions: &transitions,
	}
}

func (c *leaseClient) renew(ctx context.Context, me string) (*coordinationv1.Lease, error) {
	return c.ifMine(ctx, me, operation{"replace", "/spec/renewTime", metav1.NowMicro()})
}

func (c *leaseClient) release(ctx context.Context, me string) error {
	_, err := c.ifMine(ctx, me, operation{"replace", "/spec/holderIdentity", ""})
	return err
}

// operation is an operation of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// ifMine changes the Lease if me is its holder, regardless of other changes.
func (c *leaseClient) ifMine(ctx context.Context, me string, change operation) (*coordinationv1.Lease, error) {
	lease, err := c.patch(ctx, types.JSONPatchType, []operation{{"test", "/spec/holderIdentity", me}, change})
	if apierrors.IsInvalid(err) || apierrors.IsNotFound(err) {
		err = errLost
	}
	return lease, err
}

func (c *leaseClient) patch(ctx context.Context, kind types.PatchType, patch any) (*coordinationv1.Lease, error) {
	body, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	lease := new(coordinationv1.Lease)
	err = c.client.Patch(kind).Namespace(c.namespace).Resource("leases").Name(c.name).Body(body).Do(ctx).Into(lease)
	return lease, err
}
