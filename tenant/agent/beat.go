package agent

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/internal/wake"
	"github.com/herald-vip/herald/tenant"
)

// beats is the interval of the heartbeat Lease that shows the manager a living agent.
const beats = 30 * time.Second

// beat renews the heartbeat Lease until ctx ends, and records whether the load-balancing cluster answers.
func (a *agent) beat(ctx context.Context) {
	logged := false
	for {
		seconds := int32(tenant.TimeoutAfter / time.Second)
		err := a.remote.Apply(ctx, tenant.AgentName, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: a.opts.Remote, Name: tenant.AgentName},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &a.opts.Identity, LeaseDurationSeconds: &seconds, RenewTime: new(metav1.NowMicro())},
		})
		a.mu.Lock()
		timedOut := time.Since(a.lastAnswer) >= tenant.TimeoutAfter
		if err == nil {
			a.lastAnswer = time.Now()
		}
		a.mu.Unlock()
		if timedOut { // update the conditions of all Services
			a.addAll()
		}
		if err != nil && timedOut && !logged && ctx.Err() == nil {
			a.log.Warn("the load-balancing cluster does not answer", "reason", err)
		}
		logged = err != nil && timedOut
		if !wake.Pause(ctx, beats) {
			return
		}
	}
}

// TokenLasts is the requested lifetime of agents' tokens, which the server may shorten. renewals is the longest time between
// two renewals: an administrator may restore an old token in the Secret.
const (
	TokenLasts = 30 * 24 * time.Hour
	renewals   = 6 * time.Hour
)

// renew renews the agent's token for the load-balancing cluster: at once, as the end of the present token is unknown, and
// then long before each new token ends. The kubelet delivers the Secret to all agents.
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
			a.log.Warn("cannot renew the token for the load-balancing cluster; retrying in a minute", "reason", err)
		}
		wake.Pause(ctx, after)
	}
}
