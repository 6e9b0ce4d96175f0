package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease"
)

// node is a machine of the cluster: a clock, a kernel with the fence, a configuration file and, most of the time, the
// process.
type node struct {
	w          *world
	index      int
	name       string
	clock      clock
	file       electorate.Electorate
	want       []lease.Candidacy // candidacies in the configuration file, by VIP
	unsound    []bool            // by VIP: its checks fail
	under      []uint64          // by VIP: the cluster of its last grant
	disk       disk
	before     lease.State // an old copy of the disk
	bootstraps bool        // by its file, in a variant with births
	installs   int         // number of reinstallations, in an open electorate
	armed      instant     // end of the kernel's arming element
	proc       *process    // nil: not running
	installed  bool        // should run
}

// worker reports whether the node may run without a vote.
func (n *node) worker() bool { return n.index >= firstWorker }

// member returns the node in the form of an electorate.
func (n *node) member() string {
	if !n.w.variant.open {
		return n.name
	}
	return fmt.Sprintf("%s@#%d", n.name, n.installs)
}

// indexOf returns the node of a present or former member; -1: none.
func indexOf(member string) int { return slices.Index(pool, electorate.Name(member)) }

func (n *node) now() time.Time { return n.clock.read(n.w.now) }

// start runs a new process with its own incarnation.
func (n *node) start() {
	w := n.w
	if n.proc != nil || !n.installed {
		return
	}
	w.figures.incarnations++
	began := n.now()
	if w.variant.noAbstain {
		began = began.Add(-10 * w.set.lease)
	}
	options := lease.Options{Self: n.member(), Incarnation: w.figures.incarnations, Electorate: n.file, State: n.disk.State, Observers: len(pool)}
	if w.variant.open {
		options.Electorate.Members = []string{n.member()}
		options.Open = &lease.Open{Bootstrap: n.bootstraps || !w.variant.births && n.index == 0 && w.latest().Number == 0, Forget: forget * w.set.lease, Observer: w.variant.births && n.worker()}
	}
	m, err := lease.New(began, options)
	if err != nil {
		w.fail("start", "%s: %v", n.name, err)
		return
	}
	n.proc = &process{node: n, machine: m, wake: never, standings: map[string]electorate.Standing{}}
	w.log(n.name, "starts, incarnation %d, members %v", w.figures.incarnations, n.file.Members)
	p := n.proc
	p.speaker = speaker{process: p, vips: make([]vip, len(n.want))}
	if w.chance(0.5) {
		p.speaker.busy = true // Guard comes first
		p.after(p.latency(), func() {
			n.closeAll()
			p.speaker.busy = false
			p.speaker.work()
		})
	}
	p.flush()
	p.gossip()
	p.speaker.work()
}

// crash ends the process. The kernel keeps its state.
func (n *node) crash() {
	if n.proc != nil {
		n.w.log(n.name, "crashes")
		n.proc = nil
		n.disk.crash(n.w)
	}
}

// powerLoss ends the process and the kernel.
func (n *node) powerLoss() {
	n.crash()
	n.closeAll()
	n.armed = 0
}

// The kernel's fence: open elements end by themselves.

// jiffy is the maximum delay of the kernel in ending an element: HZ=250.
const jiffy = 4 * time.Millisecond

// arm adds the element that an opening requires.
func (n *node) arm() {
	n.armed = n.w.now + n.clock.span(n.w.set.arm) + n.w.between(0, n.w.set.jiffy)
}

// open lets the kernel answer for a VIP for d if it is still armed.
func (n *node) open(v int, d time.Duration) bool {
	w := n.w
	if w.now >= n.armed && !w.variant.noArming {
		w.log(n.name, "opens vip%d too late: no longer armed", v)
		w.figures.disarmed++
		return false
	}
	n.armed = 0
	end := w.now + n.clock.span(d) + w.between(0, w.set.jiffy)
	if w.variant.noFence {
		end = never
	}
	w.log(n.name, "opens vip%d for %v", v, d)
	w.figures.opens++
	if other := w.check.answer(v, n.index, w.now, end); other >= 0 && !w.allowed(v, other, n.index) {
		w.fail("two answer", "%s and %s both answer for vip%d", w.nodes[other].name, n.name, v)
	}
	return true
}

func (n *node) close(v int) {
	if n.w.check.silence(v, n.index, n.w.now) {
		n.w.log(n.name, "closes vip%d", v)
	}
}

func (n *node) closeAll() {
	for v := range n.w.set.vips {
		n.close(v)
	}
}
