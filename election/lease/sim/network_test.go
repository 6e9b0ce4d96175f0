package sim

import (
	"math/rand/v2"
	"time"

	"github.com/herald-vip/herald/election/lease/message"
)

// network carries messages between nodes, or loses them.
type network struct {
	cuts [][]int  // [source][destination]: number of faults that sever that direction
	seen []packet // all messages ever sent, as an attacker has recorded them
	// silent is the number of faults that suppress gossip about nodes.
	silent int
	weather
}

// weather holds the probabilities of faults per message.
type weather struct {
	loss, duplicate, slow, replay float64
}

type packet struct {
	dst  int
	data []byte
}

func newNetwork(n int) network {
	net := network{cuts: make([][]int, n)}
	for i := range net.cuts {
		net.cuts[i] = make([]int, n)
	}
	return net
}

// sever cuts the chosen directions until mend is called.
func (n *network) sever(chosen func(src, dst int) bool) (mend func()) {
	var mends []*int
	for src, row := range n.cuts {
		for dst := range row {
			if src != dst && chosen(src, dst) {
				row[dst]++
				mends = append(mends, &row[dst])
			}
		}
	}
	return func() {
		for _, count := range mends {
			*count--
		}
		mends = nil
	}
}

// send puts a machine's message on the wire. It may be lost, delayed, duplicated, reordered, and recorded by an
// attacker for replay.
func (w *world) send(src int, out message.Outgoing) {
	dst := indexOf(out.To)
	if dst == src && out.To != w.nodes[src].member() { // an earlier member on the same node
		return
	}
	if dst < 0 || dst == src {
		w.fail("address", "%s sends to %q", pool[src], out.To)
		return
	}
	out.Heard = out.Number > 0 && (out.Heard || w.variant.heard) && !w.variant.deaf
	data, err := out.Message.AppendBinary(nil)
	if err != nil || len(data) > message.MaxSize {
		w.fail("encode", "%s: message of %d bytes: %v", pool[src], len(data), err)
		return
	}
	w.figures.messages++
	w.net.seen = append(w.net.seen, packet{dst, data})
	if w.chance(w.net.replay) {
		w.replay(w.rng)
	}
	copies := 1
	if w.chance(w.net.duplicate) {
		copies = 2
	}
	for range copies {
		if w.net.cuts[src][dst] > 0 || w.chance(w.net.loss) {
			w.figures.lost++
			continue
		}
		w.after(w.transit(), func() { w.nodes[dst].receive(data) })
	}
}

// gossip repeatedly informs a process of present and former nodes.
func (p *process) gossip() {
	w := p.w
	p.after(w.between(0, 2*w.set.lease), func() {
		for i, n := range w.nodes {
			reached := w.net.silent == 0 && w.net.cuts[i][p.index] == 0 && w.net.cuts[p.index][i] == 0
			if i != p.index && (reached && n.proc != nil || w.chance(0.01)) {
				p.machine.AddObservers(p.now(), n.member())
			}
			if i != p.index && reached && n.proc != nil {
				p.standings[n.name] = n.proc.machine.Standing()
			}
		}
		p.machine.Heed(p.now(), p.standings)
		p.flush()
		p.gossip()
	})
}

// transit draws the time of a message.
func (w *world) transit() time.Duration {
	d := w.between(w.set.delay, w.set.delay+w.set.jitter)
	if w.chance(w.net.slow) {
		d += w.between(0, w.set.lease*2)
	}
	return d
}

// replay resends an old message to any node, past every cut: the attacker may be anywhere.
func (w *world) replay(rng *rand.Rand) {
	recorded := w.net.seen
	if len(recorded) == 0 {
		return
	}
	if rng.IntN(3) > 0 {
		recorded = recorded[max(0, len(recorded)-256):] // recent ones are the most dangerous
	}
	p := recorded[rng.IntN(len(recorded))]
	if rng.IntN(4) == 0 {
		p.dst = rng.IntN(len(w.nodes))
	}
	w.figures.replays++
	w.after(w.transit(), func() { w.nodes[p.dst].receive(p.data) })
}
