package failover

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"time"

	"github.com/herald-vip/herald/testenv/step"
)

// peerPrefix is announced by the peer, which checks no health.
func peerPrefix() netip.Prefix { return netip.MustParsePrefix("10.99.0.11/32") }

// peerAddress is the peer's address, on c1 beside the client.
func peerAddress() netip.Addr { return netip.MustParseAddr("10.1.9.1") }

// startPeer runs BIRD as a peer of the FRR router, with a route of its own, and waits
// until FRR has it. The peer ends with the lab.
func (r *router) startPeer(ctx context.Context) {
	neighbor := "neighbor " + peerAddress().String()
	step.Do(vtysh(ctx, r.node, "ip prefix-list peer seq 10 permit "+peerPrefix().String(),
		"router bgp 64500", neighbor+" remote-as 64512", neighbor+" passive", neighbor+" timers 60 180",
		"address-family ipv4 unicast", neighbor+" activate", neighbor+" prefix-list peer in", neighbor+" prefix-list nothing out"))
	step.Get(r.client.Start(&exec.Cmd{Args: []string{"bird", "-f", "-s", peerSocket}}))
	r.awaitPeer(ctx, peerAddress())
}

const peerSocket = "/run/bird.ctl"

// awaitPeer waits until the peer's route in FRR's kernel leads over these hops, and
// returns when that was.
func (r *router) awaitPeer(ctx context.Context, hops ...netip.Addr) time.Time {
	ctx, cancel := context.WithTimeout(ctx, steadyWithin)
	defer cancel()
	return step.Get(r.routes.AwaitHops(ctx, peerPrefix().Addr(), hops...))
}

// withdraw makes the peer withdraw its route and announce it again. It returns FRR's
// time from the UPDATE on the wire to the removal of the kernel route.
func (r *router) withdraw(ctx context.Context) time.Duration {
	// So that FRR is at rest, and trials do not fall into step with its timers.
	step.Pause(ctx, 300*time.Millisecond+time.Duration(time.Now().UnixNano()%100)*time.Millisecond)
	r.mark()
	step.Get(r.client.Run(ctx, "birdc", "-s", peerSocket, "disable", "own"))
	at := r.awaitPeer(ctx)
	told, ok := r.wire.First(peerAddress())
	if !ok {
		step.Do(fmt.Errorf("the withdrawal of %s did not arrive", peerPrefix()))
	}
	step.Get(r.client.Run(ctx, "birdc", "-s", peerSocket, "enable", "own"))
	r.awaitPeer(ctx, peerAddress())
	return at.Sub(told.At)
}
