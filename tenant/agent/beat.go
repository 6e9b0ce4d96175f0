package agent

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/internal/wake"
	"github.com/herald-vip/herald/tenant"
)

// beats is the time between two renewals of the Lease by which the manager knows that an agent is there.
const beats = 30 * time.Second

// beat tells the manager that an agent is there, until ctx ends, and takes note of whether the load-balancing cluster is.
func (a *agent) beat(ctx context.Context) {
	told := false
	for {
		seconds := int32(tenant.SilentAfter / time.Second)
		err := a.remote.Apply(ctx, tenant.AgentName, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: a.opts.Remote, Name: tenant.AgentName},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &a.opts.Identity, LeaseDurationSeconds: &seconds, RenewTime: new(metav1.NowMicro())},
		})
		a.mu.Lock()
		silent := time.Since(a.heard) >= tenant.SilentAfter
		if err == nil {
			a.heard = time.Now()
		}
		a.mu.Unlock()
		if silent { // all Services say so, or no more
			a.addAll()
		}
		if err != nil && silent && !told && ctx.Err() == nil {
			a.log.Warn("the load-balancing cluster does not answer", "reason", err)
		}
		told = err != nil && silent
		if !wake.Pause(ctx, beats) {
			return
		}
	}
}

// TokenLasts is how long tokens of agents last if the server lets them, and renewals is how long one is used at most: somebody may put an old
// one into the Secret again.
const (
	TokenLasts = 30 * 24 * time.Hour
	renewals   = 6 * time.Hour
)

// renew renews the token by which the load-balancing cluster knows the agent: at once, as nobody tells when the one that is there
// ends, and long before the new one does. The kubelet brings it to all agents.
func (a *agent) renew(ctx context.Context) {
	for a.opts.Secret != "" && ctx.Err() == nil {
		after := time.Minute
		token, lasts, err := a.remote.RequestToken(ctx, a.opts.Remote, tenant.AgentName, TokenLasts)
		if err == nil {
			err = a.own.WriteToken(ctx, a.opts.Namespace, a.opts.Secret, token)
		}
		if err == nil {
			after = max(after, min(renewals, lasts/2))
		} else if ctx.Err() == nil {
			a.log.Warn("cannot renew the token for the load-balancing cluster; trying again in a minute", "reason", err)
		}
		wake.Pause(ctx, after)
	}
}
