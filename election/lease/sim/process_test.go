package sim

import (
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/election/lease/message"
)

// process runs the machine, as package election does, and a speaker that acts on it. While it is paused, its events
// wait; its kernel continues.
type process struct {
	*node
	machine   *lease.Machine
	paused    bool
	until     instant // end of the pause
	stalled   []func()
	asleep    instant // since when its computer is suspended; zero: it is not
	woke      instant // end of the last suspension
	wake      instant // scheduled Tick; never: none
	spins     int     // consecutive Ticks with Next in the past
	speaker   speaker
	standings map[string]electorate.Standing // of nodes that it has reached by TCP
}

// do runs what in the process: now, when it resumes, or never.
func (p *process) do(what func()) {
	switch {
	case p.node.proc != p || p.w.broken != nil:
	case p.paused:
		p.stalled = append(p.stalled, what)
	default:
		what()
	}
}

func (p *process) after(d time.Duration, what func()) { p.w.after(d, func() { p.do(what) }) }

// pause freezes the process.
func (p *process) pause(d time.Duration) {
	if p.paused {
		return
	}
	p.w.log(p.name, "is paused for %v", d)
	p.paused, p.until = true, p.w.now+d
	p.w.after(d, p.resume)
}

// suspend stops the computer, with its clock and the timers of its kernel. Until the speaker has acted on the loss, the
// kernel may answer beside the next holder, which nothing prevents. So the kernel is silent here, and an opening that
// has begun before has no effect.
func (p *process) suspend(d time.Duration) {
	if p.paused {
		return
	}
	p.asleep = p.w.now
	p.closeAll()
	p.armed = 0
	p.pause(d)
}

// resume delivers waiting events in any order, except that the interrupted one comes first.
func (p *process) resume() {
	if !p.paused || p.w.now < p.until || p.node.proc != p {
		return
	}
	p.w.log(p.name, "resumes, %d events wait", len(p.stalled))
	p.paused = false
	if p.asleep > 0 {
		p.node.clock.start = p.clock.start.Add(p.clock.read(p.asleep).Sub(p.now()))
		p.asleep, p.woke = 0, p.w.now
		if !p.w.variant.sleepwalks {
			p.machine.Resume(p.now())
			p.flush()
		}
	}
	todo := p.stalled
	p.stalled = nil
	if len(todo) > 1 {
		rest := todo[1:]
		p.w.rng.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
	}
	for _, what := range todo {
		p.do(what)
	}
}

// latency draws the time between two steps of the process.
func (p *process) latency() time.Duration {
	return p.w.between(p.w.set.latency/4, p.w.set.latency)
}

// strike may crash or pause the process in the middle of its work, during the chaos.
func (p *process) strike(chance float64) {
	w := p.w
	if w.calm || !w.chance(chance) {
		return
	}
	w.figures.strikes++
	if w.chance(0.2) {
		p.crash()
		w.after(w.between(0, 2*w.set.lease), p.node.start)
	} else {
		p.pause(w.between(0, 3*w.set.lease))
	}
}

// receive handles a message from the network.
func (n *node) receive(data []byte) {
	if p := n.proc; p != nil {
		p.do(func() { p.handle(data) })
	}
}

func (p *process) handle(data []byte) {
	msg, err := message.Parse(data)
	if err != nil {
		p.w.fail("decode", "%s: %v", p.name, err)
		return
	}
	now := p.now()
	deliver := func() {
		if p.w.trace != nil {
			p.w.log(p.name, "< %s %s", msg.From, describe(msg))
		}
		p.machine.Receive(now, msg)
		p.flush()
	}
	p.strike(p.w.set.strike / 20) // after reading the clock
	p.do(deliver)
}

// tick is the machine's timer.
func (p *process) tick() {
	p.wake = never
	if p.spins++; p.spins > 100 {
		p.w.fail("spin", "%s: Next is in the past after 100 Ticks", p.name)
		return
	}
	p.run()
}

func (p *process) run() {
	if !p.w.variant.renewsStuck {
		p.machine.Unanswered(p.speaker.unanswered)
	}
	p.machine.Tick(p.now())
	p.flush()
}

// flush processes the machine's output and sets its timer.
func (p *process) flush() {
	w := p.w
	p.write()
	messages, events := p.machine.Take()
	for _, out := range messages {
		if w.trace != nil {
			w.log(p.name, "> %s %s", out.To, describe(out.Message))
		}
		p.checkStored(out.Message)
		w.send(p.index, out)
	}
	for _, e := range events {
		p.speaker.observe(e)
	}
	next := p.machine.Next()
	if next.IsZero() {
		return
	}
	at := max(p.clock.when(next), w.now)
	if at > w.now {
		p.spins = 0
	}
	if at >= p.wake {
		return // it wakes up before that anyway
	}
	p.wake = at
	w.after(at-w.now+w.between(0, w.set.latency), func() {
		if p.wake == at {
			p.do(p.tick)
		}
	})
}
