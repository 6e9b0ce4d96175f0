package arp

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herald-vip/herald/netutil/link"
	"github.com/herald-vip/herald/testenv/wait"
)

// fakeNetwork is a host with links in memory.
type fakeNetwork struct {
	mu      sync.Mutex
	links   map[string]link.Link
	changed func(map[string]link.Link)
	wires   []*fakeWire // open
	opened  int
	fail    error // of open and send
	sent    []sentFrame
}

type sentFrame struct {
	at    time.Time
	link  int
	frame []byte
}

func (n *fakeNetwork) watchLinks(ctx context.Context, changed func(map[string]link.Link)) error {
	n.mu.Lock()
	n.changed = changed
	links := maps.Clone(n.links)
	n.mu.Unlock()
	changed(links)
	<-ctx.Done()
	return nil
}

// set changes a link, or deletes it if it has no index.
func (n *fakeNetwork) set(l link.Link) {
	n.mu.Lock()
	if l.Index == 0 {
		delete(n.links, l.Name)
	} else {
		n.links[l.Name] = l
	}
	links, changed := maps.Clone(n.links), n.changed
	n.mu.Unlock()
	changed(links)
}

func (n *fakeNetwork) failWith(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fail = err
}

func (n *fakeNetwork) permitted() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.fail
}

func (n *fakeNetwork) open(l link.Link, f family, watched []netip.Addr) (wire, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fail != nil {
		return nil, n.fail
	}
	w := &fakeWire{net: n, link: l.Index, family: f, watched: watched, frames: make(chan []byte, 1000), done: make(chan struct{})}
	n.wires = append(n.wires, w)
	n.opened++
	return w, nil
}

// show delivers frames on a link.
func (n *fakeNetwork) show(link int, frames ...[]byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, frame := range frames {
		c, ok := parse(frame)
		for _, w := range n.wires {
			if ok && w.link == link && slices.Contains(w.watched, c.addr) {
				select {
				case w.frames <- frame:
				default: // the buffer is full
				}
			}
		}
	}
}

// take returns the frames sent since the last call.
func (n *fakeNetwork) take() []sentFrame {
	n.mu.Lock()
	defer n.mu.Unlock()
	defer func() { n.sent = nil }()
	return n.sent
}

// peek returns the same as take, and keeps the frames.
func (n *fakeNetwork) peek() []sentFrame {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.sent)
}

// breakWires makes all wires fail.
func (n *fakeNetwork) breakWires() {
	n.mu.Lock()
	wires := slices.Clone(n.wires)
	n.mu.Unlock()
	for _, w := range wires {
		w.interrupt()
	}
}

func (n *fakeNetwork) open4and6() (open int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.wires)
}

type fakeWire struct {
	net     *fakeNetwork
	link    int
	family  family
	watched []netip.Addr
	frames  chan []byte
	once    sync.Once
	done    chan struct{}
}

func (w *fakeWire) send(frame []byte) error {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	if w.net.fail != nil {
		return w.net.fail
	}
	w.net.sent = append(w.net.sent, sentFrame{time.Now(), w.link, frame})
	return nil
}

func (w *fakeWire) receive(b []byte) (int, error) {
	select {
	case frame := <-w.frames:
		return copy(b, frame), nil
	case <-w.done:
		return 0, os.ErrDeadlineExceeded
	}
}

func (w *fakeWire) watch(watched []netip.Addr) error {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	w.watched = watched
	return nil
}

func (w *fakeWire) interrupt() { w.once.Do(func() { close(w.done) }) }

func (w *fakeWire) close() {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	w.net.wires = slices.DeleteFunc(w.net.wires, func(o *fakeWire) bool { return o == w })
}

var eth0 = link.Link{Name: "eth0", Index: 2, Up: true, MAC: self.hardware()}

// bench is a running announcer with the link eth0, in virtual time.
type bench struct {
	*Announcer
	t        *testing.T
	net      *fakeNetwork
	log      *strings.Builder
	start    time.Time
	findings []Finding
}

// inBench runs f with an idle bench.
func inBench(t *testing.T, f func(*bench)) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t, log: new(strings.Builder), start: time.Now(),
			net: &fakeNetwork{links: map[string]link.Link{"eth0": eth0}}}
		b.Announcer = newAnnouncer(slog.New(slog.NewTextHandler(b.log, nil)), Options{
			Observe: func(f Finding) { b.findings = append(b.findings, f) },
		}, b.net)
		stop := runs(t, b.Announcer)
		f(b)
		stop()
		if n := b.net.open4and6(); n != 0 {
			t.Errorf("%d wires left open", n)
		}
		if err := b.Announce(time.Time{}, "eth0", vip4); err == nil {
			t.Error("Announce after Run: no error")
		}
	})
}

// runs runs an announcer until stop is called.
func runs(t *testing.T, a *Announcer) (stop func()) {
	stop = wait.Go(t, func(ctx context.Context) {
		if err := a.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	synctest.Wait()
	return stop
}

// wait advances time.
func (b *bench) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// sentAt returns the times at which the frame was sent since the last take, relative to start.
func (b *bench) sentAt(frame []byte) (times []time.Duration) {
	for _, s := range b.net.take() {
		if slices.Equal(s.frame, frame) {
			times = append(times, s.at.Sub(b.start))
		}
	}
	return times
}

// states returns the observed states and forgets them.
func (b *bench) states() (states []State) {
	synctest.Wait()
	for _, f := range b.findings {
		states = append(states, f.State)
	}
	b.findings = nil
	return states
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

var errFake = errors.New("out of memory")
