package demo

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/herald-vip/herald/testenv/holders"
)

// lan is the bridge of the flat topology.
const lan = "lan"

// leased bounds the VIP's outage when its holder can no longer give it up: its lease
// of 600 ms has to end, and a successor to detect that.
const leased = 1500 * time.Millisecond

// flat is the demo of the elected VIP.
type flat struct {
	*show
	observer *holders.Observer
	first    string // holder
}

func newFlat(s *show, v *view) {
	f := &flat{show: s}
	s.play = f
	// The client does not ask for the server's name: a connection that waits for an
	// answer when the VIP moves gets none.
	s.holder = func() string { m, _ := f.observer.Holder(s.vips[0]); return m }
	s.view, s.client, s.until, s.heads = v, "c1", "the client had learnt of it", [2]string{"holder", "moved in"}
}

func (f *flat) watch() (err error) {
	target := holders.Flat(f.lab)
	f.vips = target.VIPs
	f.observer, err = holders.Observe(f.lab.Node("o1"), target)
	return err
}

func (f *flat) close() error {
	if f.observer == nil {
		return nil
	}
	return f.observer.Close()
}

func (f *flat) cast() string {
	return "Three masters with apiserver and speaker, a client and an observer on one LAN"
}

func (f *flat) opening(ctx context.Context) (_ string, err error) {
	f.first, err = f.held(ctx)
	return fmt.Sprintf("The masters elected %s: it answers for %s and %s", f.first, f.vips[0], f.vips[1]), err
}

// held waits until one of the named masters, or any, holds the VIP.
func (f *flat) held(ctx context.Context, names ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	holder, err := f.observer.Await(ctx, names...)
	f.view.uses(lan, holder)
	return holder, err
}

// perform makes the acts. After each fault of the holder, another master takes over
// and keeps the VIP when the first recovers.
func (f *flat) perform(ctx context.Context) {
	node := f.lab.Node
	holder := f.first
	for _, a := range []struct {
		title, event, back string
		do, undo           func() error
		allowed            time.Duration
	}{
		{"The holder's apiserver dies", "apiserver of %s killed", "apiserver of %s back",
			func() error { return node(holder + "-apiserver").Kill() }, func() error { return node(holder + "-apiserver").Boot(ctx) }, unplanned},
		{"The holder is killed", "speaker of %s killed", "speaker of %s restarted",
			func() error { return node(holder + "-speaker").Kill() }, func() error { return node(holder + "-speaker").Boot(ctx) }, leased},
		{"The holder is frozen, its kernel is not", "speaker of %s frozen", "speaker of %s continues",
			func() error { return node(holder + "-speaker").Freeze() }, func() error { return node(holder + "-speaker").Thaw() }, leased},
		{"The holder is cut off from the other masters, not from the client", "%s parted from others", "%s among them again",
			func() error { return f.lab.Part(lan, []string{holder}, others(holder)) }, func() error { return f.lab.Part(lan) }, leased},
		{"The holder is drained for maintenance", "%s drained", "%s undrained",
			func() error {
				return f.observer.Move(holder, func() error { return f.herald(ctx, holder, "drain") })
			}, func() error { return f.herald(ctx, holder, "undrain") }, planned},
	} {
		moved := f.act(ctx, act{title: a.title, event: fmt.Sprintf(a.event, holder), do: a.do, left: others(holder), allowed: a.allowed})
		f.act(ctx, act{event: fmt.Sprintf(a.back, holder), do: a.undo, left: []string{moved.holder}, allowed: planned})
		holder = moved.holder
	}
}

func others(master string) []string {
	return slices.DeleteFunc(slices.Clone(masters), func(m string) bool { return m == master })
}

func (f *flat) settle(ctx context.Context, a act) (r row, err error) {
	at := f.observer.Clock() - time.Since(a.began)
	if r.holder, err = f.held(ctx, a.left...); err != nil {
		return r, err
	}
	f.works(ctx, f.pace)
	trace := f.observer.Trace()
	for _, v := range holders.Judge(trace, holders.DefaultLimits()) {
		if v.From > at {
			r.problem = v.String()
		}
	}
	r.what = r.holder + " keeps the VIP"
	if len(a.left) > 1 {
		r.after = lastChange(trace) - at
		r.what = fmt.Sprintf("%s answered %s later", r.holder, ms(r.after))
	}
	return r, nil
}

// lastChange returns when the last holder had answered for all addresses.
func lastChange(t *holders.Trace) (at time.Duration) {
	for vip := range t.Questions {
		if reigns := t.Reigns(vip, holders.DefaultLimits()); len(reigns) > 0 {
			at = max(at, reigns[len(reigns)-1].First.At)
		}
	}
	return at
}

// verdict prints the observer's conclusion, and returns an error if there were two holders.
func (f *flat) verdict() (err error) {
	trace := f.observer.Trace()
	questions, two := 0, "never"
	for _, q := range trace.Questions {
		questions += len(q)
	}
	for _, v := range holders.Judge(trace, holders.DefaultLimits()) {
		if v.Rule == holders.TwoHolders {
			two, err = v.String(), errMisbehaved
		}
	}
	f.view.printf("Two holders, in the answers to %d questions: %s.\n", questions, two)
	return err
}
