package health

import (
	"context"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/netns"
)

// The check follows a link through its states. Every state other than up fails it at once.
func TestLink(t *testing.T) {
	ns, admin := netns.New(t)
	expect := func(name string, k kind, reason string) {
		t.Helper()
		must.Do(t, netns.In(ns, func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			if out := must.Get[prober](t)((&Link{name}).prober(nil, 0)).probe(ctx); out.kind != k || out.reason != reason || out.own || out.slow {
				t.Errorf("%+v, want kind %d: %s", out, k, reason)
			}
			return nil
		}))
	}
	expect("lo", passed, "link lo: up") // the kernel does not know its carrier
	expect("eth1", refused, "link eth1: does not exist")
	near := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth1"}, PeerName: "far"}
	must.Do(t, admin.LinkAdd(near))
	far := must.Get[netlink.Link](t)(admin.LinkByName("far"))
	expect("eth1", refused, "link eth1: administratively down")
	must.Do(t, admin.LinkSetUp(near))
	expect("eth1", refused, "link eth1: no carrier")
	must.Do(t, admin.LinkSetUp(far))
	expect("eth1", passed, "link eth1: up")
	must.Do(t, admin.LinkSetDown(near))
	expect("eth1", refused, "link eth1: administratively down")
	must.Do(t, admin.LinkDel(near))
	expect("eth1", refused, "link eth1: does not exist")
}

// A link with a carrier may still wait for a protocol such as 802.1X.
func TestLinkDormant(t *testing.T) {
	if out := linkOutcome(unix.IFF_UP | unix.IFF_LOWER_UP | unix.IFF_DORMANT); out.kind != refused || out.reason != "dormant" {
		t.Errorf("%+v", out)
	}
}

// If the kernel does not answer, the state of the link is not known.
func TestLinkWithoutAnswer(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), -time.Second)
	defer cancel()
	out := (&linkProber{name: "lo"}).probe(ctx)
	if out.kind != failed || !out.own {
		t.Errorf("%+v", out)
	}
	t.Log(out.reason)
}
