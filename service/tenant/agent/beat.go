package agent

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/service/tenant"
	"github.com/herald-vip/herald/wake"
)

// beat tells the manager that an agent is there, until ctx ends, and takes note of whether the load-balancing cluster is.
func (a *agent) beat(ctx context.Context) {
	for {
		seconds := int32(tenant.SilentAfter / time.Second)
		err := a.remote.Apply(ctx, tenant.AgentName, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: a.opts.Remote, Name: tenant.AgentName},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &a.opts.Identity, LeaseDurationSeconds: &seconds, RenewTime: new(metav1.NowMicro())},
		})
		a.mu.Lock()
		was := time.Since(a.heard) >= tenant.SilentAfter
		if err == nil {
			a.heard = time.Now()
		}
		is := time.Since(a.heard) >= tenant.SilentAfter
		a.mu.Unlock()
		if err != nil && is && !was && ctx.Err() == nil {
			a.log.Warn("the load-balancing cluster does not answer", "reason", err)
		}
		if was || is { // all Services say so
			a.addAll()
		}
		if !wake.Pause(ctx, beats) {
			return
		}
	}
}

// Tokens of agents last so long if the server lets them, and are renewed when a third of that is left.
const (
	TokenLasts = 30 * 24 * time.Hour
	tokenLeft  = TokenLasts / 3
)

// renew renews the token by which the load-balancing cluster knows the agent, when a third of its time is left.
// The kubelet brings the new one to all agents.
func (a *agent) renew(ctx context.Context) {
	if a.opts.Secret == "" {
		return
	}
	for ; ctx.Err() == nil; wake.Pause(ctx, time.Hour) {
		ends, err := a.own.TokenEnds(ctx, a.opts.Namespace, a.opts.Secret)
		if err == nil && time.Until(ends) > tokenLeft {
			continue
		}
		var token string
		if err == nil {
			token, err = a.remote.RequestToken(ctx, a.opts.Remote, tenant.AgentName, TokenLasts)
		}
		if err == nil {
			err = a.own.WriteToken(ctx, a.opts.Namespace, a.opts.Secret, token)
		}
		if err != nil && ctx.Err() == nil {
			a.log.Warn("cannot renew the token for the load-balancing cluster; trying again in an hour", "reason", err)
		}
	}
}
