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

// The times of a Lease. A holder that cannot renew stops working leaseWorks after
// it sent the last renewal that was taken. Others take the Lease leaseLasts after
// they heard of that renewal, which is later. Between the two, requests that the
// old holder sent come to their end.
//
// Nobody compares the clocks of two machines: the times in a Lease are for people.
const (
	leaseLasts  = 6 * time.Second
	leaseWorks  = 4 * time.Second
	leaseRenews = 2 * time.Second
	leaseRetry  = 500 * time.Millisecond
	// leasePatience is how much longer than leaseLasts some wait, so that not all
	// take a Lease at once.
	leasePatience = time.Second
	// leaseLongest bounds what the Lease itself says that it lasts.
	leaseLongest = time.Minute
)

// errLost is the error of a request of somebody who is not the holder any more.
var errLost = errors.New("another holds the Lease")

// view is what one process knows of a Lease.
type view struct {
	me string
	// lease is as it was last heard of, nil if there is none.
	lease *coordinationv1.Lease
	// heard is when that was.
	heard time.Time
	// deleted: there was one before. Its holder may not have heard of that yet.
	deleted bool
	// sent is when the last renewal was sent that was taken, zero for who is not
	// the holder.
	sent time.Time
	// patience is up to leasePatience, and differs between processes.
	patience time.Duration
}

// step is what to do about a Lease.
type step int

const (
	idle step = iota
	create
	take
	renew
	lose // stop working: another is the holder, or may soon be
)

// decide is what to do now, and when to look again if there is nothing to do.
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
	case v.lease != nil && (holder == "" || holder == v.me): // given back, or taken without an answer
		return take, now
	}
	if over := v.heard.Add(v.lasts() + v.patience); now.Before(over) {
		return idle, over
	}
	if v.lease == nil {
		return create, now
	}
	return take, now
}

// holder is the identity of the holder, empty if there is none.
func (v *view) holder() string {
	if v.lease == nil || v.lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *v.lease.Spec.HolderIdentity
}

// lasts is how long the Lease lasts without a renewal.
func (v *view) lasts() time.Duration {
	if v.lease == nil || v.lease.Spec.LeaseDurationSeconds == nil || *v.lease.Spec.LeaseDurationSeconds <= 0 {
		return leaseLasts
	}
	return min(time.Duration(*v.lease.Spec.LeaseDurationSeconds)*time.Second, leaseLongest)
}

// leases makes requests about one Lease.
type leases interface {
	// create makes it, and me its holder.
	create(ctx context.Context, me string) (*coordinationv1.Lease, error)
	// take makes me its holder if it is as it was read.
	take(ctx context.Context, me string, read *coordinationv1.Lease) (*coordinationv1.Lease, error)
	// renew tells the others that the holder me is there, and fails with errLost
	// if it is not the holder.
	renew(ctx context.Context, me string) (*coordinationv1.Lease, error)
	// release leaves it without a holder, if me is the holder.
	release(ctx context.Context, me string) error
}

// leaseClient makes the requests of leases to a server.
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

// heldBy is a Lease that me has taken now.
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

// operation is one of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// ifMine changes the Lease if me is its holder, whatever else has changed of it.
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
