package lab_test

import (
	"errors"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/must"
)

// TestLinkFaults checks that datagrams are lost in exactly the cut directions, with the carrier
// up.
func TestLinkFaults(t *testing.T) {
	l := start(t, load(t, "small.clab.yml"), lab.Options{})
	c1, r1, m1 := l.Node("c1"), l.Node("r1"), l.Node("m1")
	link := l.Link("c1", "r1")
	faults := []struct {
		name        string
		make        func() error
		there, back bool // whether a datagram arrives
	}{
		{"none", func() error { return nil }, true, true},
		{"cut", link.Cut, false, false},
		{"cut from c1", func() error { return link.CutFrom("c1") }, false, true},
		{"cut from r1", func() error { return link.CutFrom("r1:eth1") }, true, false},
		{"cut from each", func() error { return errors.Join(link.CutFrom("c1"), link.CutFrom("r1")) }, false, false},
		{"cut more", func() error { return errors.Join(link.CutFrom("c1"), link.Cut(), link.Cut()) }, false, false},
		{"heal", func() error { return errors.Join(link.Cut(), link.Heal(), link.Heal()) }, true, true},
	}
	for _, family := range []struct{ name, c1, m1 string }{
		{"IPv4", "10.0.1.1", "10.0.2.1"},
		{"IPv6", "fd00:0:1::1", "fd00:0:2::1"},
	} {
		for _, fault := range faults {
			t.Run(family.name+"/"+fault.name, func(t *testing.T) {
				there, back := newTalk(t, c1, m1, family.m1), newTalk(t, m1, c1, family.c1)
				there.works()
				back.works()
				must.Do(t, fault.make())
				if !carrier(t, c1, "eth1") || !carrier(t, r1, "eth1") {
					t.Error("no carrier")
				}
				there.say("during")
				back.say("during")
				if fault.there && there.hear() != "during" {
					t.Error("m1 received another datagram first")
				}
				if fault.back && back.hear() != "during" {
					t.Error("c1 received another datagram first")
				}
				must.Do(t, link.Heal())
				there.works()
				back.works()
			})
		}
	}
}

// TestLinkDown takes the carrier from both ends and gives it back.
func TestLinkDown(t *testing.T) {
	l := start(t, load(t, "small.clab.yml"), lab.Options{})
	c1, r1, m1 := l.Node("c1"), l.Node("r1"), l.Node("m1")
	talks := []*talk{newTalk(t, c1, m1, "10.0.2.1"), newTalk(t, m1, c1, "fd00:0:1::1")}
	link := l.Link("r1", "c1")
	for _, back := range []func() error{link.Heal, link.Cut, link.Heal} {
		must.Do(t, link.Down())
		if carrier(t, c1, "eth1") || carrier(t, r1, "eth1") {
			t.Error("a carrier is left")
		}
		if !carrier(t, r1, "eth2") {
			t.Error("another link lost its carrier")
		}
		must.Do(t, back())
		if !carrier(t, c1, "eth1") || !carrier(t, r1, "eth1") {
			t.Error("the carrier is not back")
		}
	}
	for _, k := range talks {
		k.recovers()
	}
}

// carrier reports whether the node's interface has a carrier.
func carrier(t *testing.T, n *lab.Node, name string) bool {
	t.Helper()
	h := must.Get[*netlink.Handle](t)(n.Handle())
	defer h.Close()
	link := must.Get[netlink.Link](t)(h.LinkByName(name))
	return link.Attrs().RawFlags&unix.IFF_LOWER_UP != 0
}

const flat = `
name: flat
topology:
  defaults: {kind: linux, entrypoint: sleep, cmd: infinity}
  nodes:
    sw: {kind: bridge}
    other: {kind: bridge}
    a: {exec: [ip addr add 10.0.0.1/24 dev eth1]}
    b: {exec: [ip addr add 10.0.0.2/24 dev eth1, ip addr add 10.0.1.2/24 dev eth2]}
    c: {exec: [ip addr add 10.0.0.3/24 dev eth1]}
    d: {exec: [ip addr add 10.0.1.4/24 dev eth1]}
  links:
  - {endpoints: ["a:eth1", "sw:eth1"]}
  - {endpoints: ["b:eth1", "sw:eth2"], mtu: 1400}
  - {endpoints: ["sw:eth3", "c:eth1"]}
  - {endpoints: ["b:eth2", "other:eth1"]}
  - {endpoints: ["other:eth2", "d:eth1"]}
`

// TestBridge checks that bridges are separate LANs, and that their ports can be cut
// singly, in one direction too.
func TestBridge(t *testing.T) {
	l := start(t, parse(t, flat), lab.Options{})
	a, b, c, d := l.Node("a"), l.Node("b"), l.Node("c"), l.Node("d")
	ab, ac, cb := newTalk(t, a, b, "10.0.0.2"), newTalk(t, a, c, "10.0.0.3"), newTalk(t, c, b, "10.0.0.2")
	bd := newTalk(t, b, d, "10.0.1.4")
	for _, k := range []*talk{ab, ac, cb, bd} {
		k.works()
	}
	must.Do(t, l.Link("b:eth1", "sw").CutFrom("sw"))
	ab.say("lost")
	cb.say("lost")
	ac.works()
	bd.works()
	must.Do(t, l.Link("sw", "b").Heal())
	ab.works()
	cb.works()

	h := must.Get[*netlink.Handle](t)(b.Handle())
	defer h.Close()
	for name, want := range map[string]int{"eth1": 1400, "eth2": 9500} {
		if got := must.Get[netlink.Link](t)(h.LinkByName(name)).Attrs().MTU; got != want {
			t.Errorf("%s has MTU %d, want %d", name, got, want)
		}
	}
}
