package failover

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"time"

	"github.com/herald-vip/herald/testenv/bench/observe"
)

// peerPrefix is announced by the peer, which checks no health.
func peerPrefix() netip.Prefix { return netip.MustParsePrefix("10.99.0.11/32") }

// peerAddress is the peer's address, on c1 beside the client.
func peerAddress() netip.Addr { return netip.MustParseAddr("10.1.9.1") }

// startPeer runs BIRD as a peer of the FRR router, with a route of its own, and waits
// until FRR has it. The peer ends with the lab.
func (r *router) startPeer(ctx context.Context) error {
	neighbor := "neighbor " + peerAddress().String()
	err := vtysh(ctx, r.node, "ip prefix-list peer seq 10 permit "+peerPrefix().String(),
		"router bgp 64500", neighbor+" remote-as 64512", neighbor+" passive", neighbor+" timers 60 180",
		"address-family ipv4 unicast", neighbor+" activate", neighbor+" prefix-list peer in", neighbor+" prefix-list nothing out")
	if err != nil {
		return err
	}
	if _, err := r.client.Start(&exec.Cmd{Args: []string{"bird", "-f", "-s", peerSocket}}); err != nil {
		return err
	}
	return r.awaitPeer(ctx)
}

const peerSocket = "/run/bird.ctl"

// awaitPeer waits until FRR's kernel has the peer's route.
func (r *router) awaitPeer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, steadyWithin)
	defer cancel()
	_, err := r.routes.AwaitHops(ctx, peerPrefix().Addr(), peerAddress())
	return err
}

// withdraw makes the peer withdraw its route and announce it again. It returns FRR's
// time from the UPDATE on the wire to the removal of the kernel route.
func (r *router) withdraw(ctx context.Context) (took time.Duration, err error) {
	// So that FRR is at rest, and trials do not fall into step with its timers.
	if err := observe.Pause(ctx, 300*time.Millisecond+time.Duration(time.Now().UnixNano()%100)*time.Millisecond); err != nil {
		return 0, err
	}
	r.mark()
	if _, err := r.client.Run(ctx, "birdc", "-s", peerSocket, "disable", "own"); err != nil {
		return 0, err
	}
	within, cancel := context.WithTimeout(ctx, steadyWithin)
	defer cancel()
	at, err := r.routes.AwaitHops(within, peerPrefix().Addr())
	if err != nil {
		return 0, err
	}
	told, ok := r.wire.First(peerAddress())
	if !ok {
		return 0, fmt.Errorf("the withdrawal of %s did not arrive", peerPrefix())
	}
	if _, err := r.client.Run(ctx, "birdc", "-s", peerSocket, "enable", "own"); err != nil {
		return 0, err
	}
	return at.Sub(told.At), r.awaitPeer(ctx)
}
