package lab

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/testenv/clab"
	"github.com/herald-vip/herald/testenv/step"
)

// wires is the network namespace that all links run through. It has no addresses and
// answers no packet.
type wires struct {
	ns      netns.NsHandle
	netlink *netlink.Handle
	bridges map[string]int // interface index by node name
}

func newWires() (*wires, error) {
	ns, err := newNetwork(func() error { return setSysctl("net.ipv6.conf.default.disable_ipv6", "1") })
	if err != nil {
		return nil, err
	}
	h, err := netlink.NewHandleAt(ns)
	if err != nil {
		return nil, errors.Join(err, ns.Close())
	}
	return &wires{ns: ns, netlink: h, bridges: make(map[string]int)}, nil
}

func (w *wires) close() error {
	w.netlink.Close()
	return w.ns.Close()
}

// addBridge makes the LAN of a bridge node. It forwards immediately and floods
// multicast like a plain switch.
func (w *wires) addBridge(node string) error {
	var snooping bool
	attrs := netlink.NewLinkAttrs()
	attrs.Name = fmt.Sprintf("bridge%d", len(w.bridges))
	b := &netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &snooping}
	if err := w.netlink.LinkAdd(b); err != nil {
		return err
	}
	w.bridges[node] = b.Index
	return w.netlink.LinkSetUp(b)
}

// Link is a cable between two nodes. Each end is a veth pair, one half in the node and
// the other, the plug, in the wires. Frames from one plug are put into the other.
// Faults are made there, invisibly to the nodes.
type Link struct {
	wires *wires
	mtu   int
	ends  [2]*end

	mu   sync.Mutex
	cut  [2]bool // frames from ends[i] are lost
	down bool    // without carrier
	deaf [2]int  // number of senders that ends[i] does not receive
}

// bothWays returns the cut of a dead link.
func bothWays() [2]bool { return [2]bool{true, true} }

// end is one end of a link.
type end struct {
	clab.Endpoint
	machine *machine // nil at a bridge
	name    string   // the plug's interface
	mac     net.HardwareAddr
	plug    int // interface index
}

// newLink describes the link; plug makes it.
func (l *Lab) newLink(index int, spec clab.Link) *Link {
	link := &Link{wires: l.wires, mtu: spec.MTU, cut: bothWays()}
	for i, e := range []clab.Endpoint{spec.A, spec.B} {
		link.ends[i] = &end{
			Endpoint: e,
			name:     fmt.Sprintf("link%d%c", index, "ab"[i]),
			// Locally administered, and unchanged after a machine's power cycle.
			mac: net.HardwareAddr{0x02, 0, 0, byte(index >> 8), byte(index), 0x0a + byte(i)},
		}
		if _, bridge := l.wires.bridges[e.Node]; !bridge {
			link.ends[i].machine = l.Node(e.Node).machine
		}
	}
	return link
}

func (l *Lab) linksOf(m *machine) []*Link {
	return slices.DeleteFunc(slices.Clone(l.links), func(l *Link) bool {
		return l.ends[0].machine != m && l.ends[1].machine != m
	})
}

// String returns both endpoints, as in "m1:eth1 to r1:eth1".
func (l *Link) String() string { return fmt.Sprintf("%v to %v", l.ends[0], l.ends[1]) }

func (l *Link) joins(a, b string) bool { return l.ends[0].matches(a) && l.ends[1].matches(b) }

// matches reports whether the name, a node's or "node:interface", denotes the end.
func (e *end) matches(name string) bool { return name == e.Node || name == e.String() }

// plug makes the missing ends of the link on machines with power and, once both ends
// are there, lets frames pass.
func (l *Link) plug() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	complete := true
	for _, e := range l.ends {
		switch {
		case e.plug != 0:
		case e.machine != nil && !e.machine.on():
			complete = false
		default:
			if err := step.Run(func() { l.wires.insert(e, l.mtu) }); err != nil {
				return fmt.Errorf("%v: %w", e, err)
			}
		}
	}
	if !complete {
		return nil
	}
	return l.set([2]bool{}, false)
}

// insert makes an end: the node's interface and the plug.
func (w *wires) insert(e *end, mtu int) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = e.name, mtu
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: e.Interface, PeerMTU: uint32(mtu), PeerHardwareAddr: e.mac}
	far, ns := w.netlink, w.ns
	if e.machine == nil {
		veth.PeerName = e.name + "-port" // two bridges may have ports of the same name
	} else {
		ns = step.Get(e.machine.network())
		defer ns.Close()
		far = step.Get(netlink.NewHandleAt(ns))
		defer far.Close()
	}
	veth.PeerNamespace = netlink.NsFd(ns)
	step.Doing("add veth pair", w.netlink.LinkAdd(veth))
	peer := step.Get(far.LinkByName(veth.PeerName))
	if e.machine == nil {
		step.Doing("join bridge", far.LinkSetMasterByIndex(peer, w.bridges[e.Node]))
	}
	ingress := &netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: veth.Index, Handle: ingressHandle, Parent: netlink.HANDLE_INGRESS}}
	step.Doing("add ingress qdisc", w.netlink.QdiscAdd(ingress))
	step.Doing("set up", errors.Join(w.netlink.LinkSetUp(veth), far.LinkSetUp(peer)))
	e.plug = veth.Index
}

// unplug removes the end of a destroyed machine; it may be gone already. The link must be cut.
func (l *Link) unplug(m *machine) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.ends {
		if e.machine != m {
			continue
		}
		err := l.wires.netlink.LinkDel(device(e.plug))
		if err != nil && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("link %v: remove %v: %w", l, e, err)
		}
		e.plug = 0
	}
	return nil
}

func device(index int) netlink.Link {
	return &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}
}

// ingressHandle is the handle that the kernel gives the ingress qdisc.
const ingressHandle = 0xffff_0000

// redirectPriority is the redirect's: it comes after the filters that lose frames.
const redirectPriority = 1 << 8

// filterAt returns the attributes of a filter for frames from ends[i].
func (l *Link) filterAt(i int, priority uint16) netlink.FilterAttrs {
	return netlink.FilterAttrs{LinkIndex: l.ends[i].plug, Parent: ingressHandle, Priority: priority, Protocol: unix.ETH_P_ALL}
}

// redirect returns the filter that puts all frames from ends[i] into the other plug.
func (l *Link) redirect(i int) netlink.Filter {
	return &netlink.U32{ // without a selector: all frames
		FilterAttrs: l.filterAt(i, redirectPriority),
		Actions:     []netlink.Action{netlink.NewMirredAction(l.ends[1-i].plug)},
	}
}

// set brings the link into a state; cut is by sender. A link without both ends stays dead.
func (l *Link) set(cut [2]bool, down bool) error {
	for _, e := range l.ends {
		if e.plug == 0 && cut == bothWays() && !down {
			return nil
		}
		if e.plug == 0 {
			return fmt.Errorf("link %v: %s: %w", l, e.Node, errOff)
		}
	}
	for i, e := range l.ends {
		if cut[i] != l.cut[i] {
			change := l.wires.netlink.FilterAdd
			if cut[i] {
				change = l.wires.netlink.FilterDel // without a filter the wires drop the frame
			}
			if err := change(l.redirect(i)); err != nil {
				return fmt.Errorf("link %v: cut %v: %w", l, cut[i], err)
			}
			l.cut[i] = cut[i]
		}
		change := l.wires.netlink.LinkSetUp
		if down {
			change = l.wires.netlink.LinkSetDown
		}
		if err := change(device(e.plug)); err != nil {
			return fmt.Errorf("link %v: down %v: %w", l, down, err)
		}
	}
	l.down = down
	return nil
}

// Cut loses all frames in both directions. The carrier stays up, so that both ends
// notice only silence. A link that is down gets its carrier back.
func (l *Link) Cut() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.set(bothWays(), false)
}

// CutFrom loses only the frames that the node sends; frames that were already lost stay lost.
func (l *Link) CutFrom(node string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	cut := l.cut
	cut[l.side(node)] = true
	return l.set(cut, l.down)
}

// Down takes the carrier from both ends, as an unplugged cable does.
func (l *Link) Down() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.set(l.cut, true)
}

// Heal undoes Cut, CutFrom and Down.
func (l *Link) Heal() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.set([2]bool{}, false)
}

// side returns the index of the node's end. It panics if there is none.
func (l *Link) side(node string) int {
	i := slices.IndexFunc(l.ends[:], func(e *end) bool { return e.matches(node) })
	if i < 0 {
		panic(fmt.Sprintf("lab: %q is no end of the link %v", node, l))
	}
	return i
}
