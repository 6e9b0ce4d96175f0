// Package holders watches a flat layer 2 from outside, to see which nodes answer for a
// VIP, and judges whether there was ever more than one.
//
// The [Observer] asks for each VIP by ARP or NDP every 10 ms, and sends a packet to it
// at the MAC address of each master. It asks from changing sender addresses, so that
// an answer identifies its question. It takes the times from the kernel, so that its
// own process may be late. It does not ask Herald. [Judge] finds the violations in its
// [Trace].
package holders

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/step"
	"github.com/herald-vip/herald/testenv/tap"
)

const (
	// interval is the time between two questions.
	interval = 10 * time.Millisecond
	// senders is the number of sender addresses that the questions use in turn. An answer
	// that takes longer than a whole cycle is attributed to a later question.
	senders = 32
	// pending is the number of echo requests remembered.
	pending = 1 << 13
	// strangers bounds the number of strangers' MAC addresses remembered.
	strangers = 1 << 10
	// recent is how long an answer makes its sender the holder, for [Observer.Holder].
	recent = 5 * interval
)

// Target describes an observation.
type Target struct {
	// Link is the observer's interface on the LAN.
	Link string
	// VIPs are the addresses to ask for.
	VIPs []netip.Addr
	// Senders are the first of 32 unused addresses each, one of each family, in the LAN's
	// subnets. The questions come from them.
	Senders []netip.Addr
	// Masters maps the permitted holders to their MAC addresses.
	Masters map[string]net.HardwareAddr
}

// Observer observes from Observe until Close.
type Observer struct {
	target  Target
	own     []station // the observer's own address in the family of VIPs[i]
	names   []string  // of the masters, in the order of the echo requests
	began   time.Time
	ear     *tap.Tap
	mouth   *packet.Conn
	quit    chan struct{}
	running sync.WaitGroup

	mu      sync.Mutex
	asked   map[netip.Addr]time.Duration // the last question by sender address
	echoes  [pending]time.Duration       // by number
	trace   Trace
	holders map[netip.Addr]Observation // the last answer for each VIP
	changed chan struct{}              // closed and replaced when the holder of a VIP changes
	failed  error
}

// Observe begins to observe from the node.
func Observe(n *lab.Node, target Target) (*Observer, error) {
	o := &Observer{
		target: target, names: slices.Sorted(maps.Keys(target.Masters)),
		began: time.Now(), quit: make(chan struct{}),
		asked: make(map[netip.Addr]time.Duration), holders: make(map[netip.Addr]Observation), changed: make(chan struct{}),
	}
	o.trace.Questions, o.trace.Strangers = make(map[netip.Addr][]time.Duration), make(map[string]int)
	var questions [senders][][]byte
	err := step.Run(func() {
		step.Named(fmt.Sprintf("observe %s of %s", target.Link, n.Name()), func() {
			o.lookAround(n)
			questions = o.questions()
			step.Do(n.Do(func() error {
				dev, err := net.InterfaceByName(target.Link)
				if err == nil {
					o.mouth, err = packet.Listen(dev, packet.Raw, 0, nil) // it receives nothing
				}
				return err
			}))
		})
	})
	if err != nil {
		return nil, err
	}
	if o.ear, err = tap.Open(n, target.Link, filter(), o.take); err != nil {
		return nil, errors.Join(err, o.mouth.Close())
	}
	o.running.Go(func() { o.ask(questions) })
	return o, nil
}

// lookAround finds the observer's own addresses.
func (o *Observer) lookAround(n *lab.Node) {
	h := step.Get(n.Handle())
	defer h.Close()
	link := step.Get(h.LinkByName(o.target.Link))
	list := step.Get(h.AddrList(link, unix.AF_UNSPEC))
	for _, vip := range o.target.VIPs {
		own := station{mac: link.Attrs().HardwareAddr}
		for _, a := range list {
			ip, _ := netip.AddrFromSlice(a.IP)
			if ip = ip.Unmap(); ip.Is4() == vip.Is4() && ip.IsGlobalUnicast() {
				own.ip = ip
			}
		}
		if !own.ip.IsValid() {
			step.Do(fmt.Errorf("no address of the family of %s", vip))
		}
		o.own = append(o.own, own)
	}
}

// questions returns all questions by turn: one for each VIP.
func (o *Observer) questions() (turns [senders][][]byte) {
	for i, vip := range o.target.VIPs {
		s := slices.IndexFunc(o.target.Senders, func(a netip.Addr) bool { return a.Is4() == vip.Is4() })
		if s < 0 {
			step.Do(fmt.Errorf("no sender address for %s", vip))
		}
		from := station{o.own[i].mac, o.target.Senders[s]}
		for turn := range turns {
			turns[turn] = append(turns[turn], step.Get(question(from, vip)))
			from.ip = from.ip.Next()
		}
	}
	return turns
}

// ask asks until Close.
func (o *Observer) ask(turns [senders][][]byte) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for number := uint64(0); ; {
		for _, questions := range turns {
			select {
			case <-tick.C:
			case <-o.quit:
				return
			}
			for _, q := range questions {
				o.send(q)
			}
			for i, vip := range o.target.VIPs {
				for _, master := range o.names {
					f, err := echo(o.own[i], station{o.target.Masters[master], vip}, number)
					if err != nil {
						o.fail(err)
						return
					}
					o.send(f)
					number++
				}
			}
		}
	}
}

// send sends a frame. A full queue is no error: the question counts as not asked.
func (o *Observer) send(frame []byte) {
	if _, err := o.mouth.WriteTo(frame, &packet.Addr{HardwareAddr: frame[:6]}); err != nil && !errors.Is(err, unix.ENOBUFS) {
		o.fail(fmt.Errorf("send: %w", err))
	}
}

func (o *Observer) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed == nil {
		o.failed = err
	}
}

// take records the information of a frame.
func (o *Observer) take(f tap.Frame) {
	g, err := read(f.Data)
	if err != nil {
		return
	}
	// The kernel's times are wall clock times, so the difference must be, too.
	at := f.At.Sub(o.began.Round(0))
	o.mu.Lock()
	defer o.mu.Unlock()
	if f.Outgoing {
		o.sent(g, at)
		return
	}
	if !slices.Contains(o.target.VIPs, g.vip) {
		return
	}
	s := Observation{At: at, Asked: at, VIP: g.vip, Master: o.master(g.from), Act: g.act}
	switch g.act {
	case Answers:
		if asked, ok := o.asked[g.peer]; ok {
			s.Asked = asked
		}
	case Accepts:
		s.Asked = o.echoes[g.number%pending]
	case Announces, Asks:
	default:
		return
	}
	if s.Master == "" {
		if len(o.trace.Strangers) < strangers {
			o.trace.Strangers[g.from.String()]++
		}
		return
	}
	o.trace.Observations = append(o.trace.Observations, s)
	if s.Act == Answers {
		before := o.holders[s.VIP]
		o.holders[s.VIP] = s
		if before.Master != s.Master {
			close(o.changed)
			o.changed = make(chan struct{})
		}
	}
}

// sent remembers when a question went out.
func (o *Observer) sent(g glimpse, at time.Duration) {
	switch g.act {
	case Asks: // an ARP request or neighbour solicitation names its sender address
		o.asked[g.vip] = at
		if slices.Contains(o.target.VIPs, g.peer) {
			o.trace.Questions[g.peer] = append(o.trace.Questions[g.peer], at)
		}
	case probing:
		o.echoes[g.number%pending] = at
	}
}

// master returns the master with the MAC address; empty for a stranger.
func (o *Observer) master(mac net.HardwareAddr) string {
	for _, name := range o.names {
		if slices.Equal(o.target.Masters[name], mac) {
			return name
		}
	}
	return ""
}

// Clock returns the time since the start of the observation.
func (o *Observer) Clock() time.Duration { return time.Since(o.began) }

// Move records a planned change, made by do, that takes the VIPs from the master, or may do so.
func (o *Observer) Move(master string, do func() error) error {
	m := Move{Master: master, From: o.Clock()}
	err := do()
	m.To = o.Clock()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.trace.Moves = append(o.trace.Moves, m)
	return err
}

// Holder returns the master that answers for the VIP now; empty if none does. The
// channel is closed when another one answers.
func (o *Observer) Holder(vip netip.Addr) (master string, changed <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s, ok := o.holders[vip]; ok && o.Clock()-s.At < recent {
		master = s.Master
	}
	return master, o.changed
}

// Await waits until one of these masters, or any if none is named, answers for all
// VIPs, and returns its name.
func (o *Observer) Await(ctx context.Context, masters ...string) (string, error) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		var holders []string
		for _, vip := range o.target.VIPs {
			m, _ := o.Holder(vip)
			holders = append(holders, m)
		}
		holder := holders[0]
		if len(slices.Compact(slices.Clone(holders))) == 1 && holder != "" && (len(masters) == 0 || slices.Contains(masters, holder)) {
			return holder, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return "", fmt.Errorf("the holders of %v are %q, want one of the masters %q: %w", o.target.VIPs, holders, masters, context.Cause(ctx))
		}
	}
}

// Trace returns the observations so far.
func (o *Observer) Trace() *Trace {
	o.mu.Lock()
	defer o.mu.Unlock()
	t := o.trace // its lists are only appended to
	t.Questions, t.Strangers, t.End = maps.Clone(t.Questions), maps.Clone(t.Strangers), o.Clock()
	return &t
}

// Close ends the observation. An error means that the observation was incomplete.
func (o *Observer) Close() error {
	close(o.quit)
	o.running.Wait()
	return errors.Join(o.ear.Close(), o.mouth.Close(), o.failed)
}
