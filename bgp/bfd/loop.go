package bfd

import (
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/internal/wake"
)

// retryListen is the time between two attempts to open a receiving socket.
const retryListen = time.Second

// loop owns all sessions and sockets and does everything with them, on one
// goroutine that waits in the kernel for a packet, a command or a time.
//
// Each turn reads the clock, then all queued packets, and only then decides which detection times have expired, by the
// earlier clock value. So a process that was not scheduled for a while does not mistake its own pause for a silent
// peer: packets that arrived meanwhile count first.
type loop struct {
	reporter *reporter
	inside   func(func() error) error // calls functions that open sockets
	wake     int                      // an eventfd: there are commands
	done     chan struct{}

	mu       sync.Mutex
	commands []func()
	aborted  bool
	ended    bool

	// Only the loop's goroutine uses these.
	sessions  map[netip.Addr]*session // by peer
	adminDown []*session              // shut down, with goodbyes to send
	closing   bool
	sockets   map[endpoint]*listener
	retry     time.Time // when to try again to open a socket, zero if none is missing
	polled    []unix.PollFd
	timeout   unix.Timespec
	datagram  datagram
	packet    Packet
}

func newLoop(wake int, r *reporter, inside func(func() error) error) *loop {
	return &loop{
		reporter: r, wake: wake, inside: inside, done: make(chan struct{}),
		sessions: make(map[netip.Addr]*session), sockets: make(map[endpoint]*listener),
	}
}

// do runs f in the loop and returns when it is done.
func (l *loop) do(f func()) error {
	called := make(chan struct{})
	l.mu.Lock()
	if l.ended {
		l.mu.Unlock()
		return ErrClosed
	}
	l.commands = append(l.commands, func() { f(); close(called) })
	l.stir()
	l.mu.Unlock()
	<-called
	return nil
}

// abort ends the loop without goodbyes.
func (l *loop) abort() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.aborted = true
		l.stir()
	}
}

// stir wakes the loop. The mutex is held, so that the eventfd is still there.
func (l *loop) stir() {
	_, _ = unix.Write(l.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // it fails only if the loop is to wake up anyway
}

// run keeps the sessions until the loop is closing and has sent the last goodbye, or abort.
func (l *loop) run() {
	runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
	outrank()
	for !l.obey() {
		now := time.Now()
		if wake.Due(now, l.retry) {
			l.listen(now)
		}
		for _, socket := range l.sockets {
			l.drain(socket)
		}
		if next := l.act(now); !l.finished() {
			l.sleep(next)
		}
	}
	for _, s := range l.sessions {
		s.close()
	}
	for _, s := range l.adminDown {
		s.close()
	}
	for _, socket := range l.sockets {
		socket.close()
	}
}

// outrank raises the priority of the calling thread above the other threads of a process with real-time scheduling,
// where threads of equal priority take long turns. An error leaves the priority unchanged.
func outrank() {
	attr, err := unix.SchedGetAttr(0, 0)
	if err == nil && (attr.Policy == unix.SCHED_RR || attr.Policy == unix.SCHED_FIFO) {
		attr.Priority++
		_ = unix.SchedSetAttr(0, attr, 0)
	}
}

// obey runs the queued functions, and reports whether the loop must end, which accepts no more of them.
func (l *loop) obey() (over bool) {
	l.mu.Lock()
	commands := l.commands
	l.commands = nil
	if l.aborted || l.finished() && len(commands) == 0 {
		l.ended = true
		_ = unix.Close(l.wake)
	}
	over = l.ended
	l.mu.Unlock()
	for _, command := range commands {
		command()
	}
	return over
}

// finished reports whether the last goodbye was sent.
func (l *loop) finished() bool { return l.closing && len(l.adminDown) == 0 }

// sleep waits for a packet, a command or a time; a zero time means no limit.
func (l *loop) sleep(until time.Time) {
	l.polled = append(l.polled[:0], unix.PollFd{Fd: int32(l.wake), Events: unix.POLLIN})
	for _, socket := range l.sockets {
		l.polled = append(l.polled, unix.PollFd{Fd: int32(socket.fd), Events: unix.POLLIN})
	}
	var timeout *unix.Timespec
	if !until.IsZero() {
		l.timeout = unix.NsecToTimespec(int64(max(0, time.Until(until))))
		timeout = &l.timeout
	}
	_, _ = unix.Ppoll(l.polled, timeout, nil) // interrupted or not, the next turn looks at everything
	if l.polled[0].Revents != 0 {
		var count [8]byte
		_, _ = unix.Read(l.wake, count[:])
	}
}

// drain reads the queue of a socket. Packets that arrive meanwhile may wait for the next turn, so that a flood
// cannot keep the loop from its other work.
func (l *loop) drain(s *listener) {
	for range maxQueued {
		if !s.receive(&l.datagram) {
			return
		}
		l.dispatch(s, time.Now())
	}
}

// dispatch passes a packet to the session of its sender. Other sessions never get it, even if it names their
// discriminator, which is all that RFC 5880 section 6.8.6 asks for: others may have seen the discriminator.
func (l *loop) dispatch(on *listener, now time.Time) {
	d, p := &l.datagram, &l.packet
	sender := l.sender(d)
	if sender == nil {
		return
	}
	err := p.Decode(d.payload)
	if err == nil {
		err = sender.check(d, p, on == l.sockets[sender.config.endpoint()])
	}
	if err != nil {
		sender.discarded++
		sender.odd, sender.receiveErr = datagram{dst: d.dst, ttl: d.ttl}, err
		return
	}
	sender.in++
	sender.receiveErr = nil
	sender.receive(p, now)
	l.report(sender, now)
}

// sender returns the session with the source address of the datagram, or nil.
func (l *loop) sender(d *datagram) *session {
	from := d.from
	if from.Is6() && from.IsLinkLocalUnicast() {
		for _, s := range l.sessions {
			if s.zone == d.zone && s.config.Peer.WithZone("") == from {
				return s
			}
		}
		return nil
	}
	return l.sessions[from]
}

// act does the due work of each session and returns the time of the next.
func (l *loop) act(now time.Time) (next time.Time) {
	next = l.retry
	for _, s := range l.sessions {
		s.act(now, l.open)
		l.report(s, now)
		next = wake.Earlier(next, s.due())
	}
	l.adminDown = slices.DeleteFunc(l.adminDown, func(s *session) bool {
		s.act(now, l.open)
		if s.goodbyes == 0 {
			s.close()
			return true
		}
		next = wake.Earlier(next, s.due())
		return false
	})
	return next
}

// report passes on a change of the session's state.
func (l *loop) report(s *session, now time.Time) {
	current := report{s.state, s.failed}
	if current == s.reported {
		return
	}
	if current.state != s.reported.state {
		s.since = now
	}
	s.reported = current
	l.reporter.add(change{status: s.status()})
}

// apply puts the wanted sessions in force, by peer.
func (l *loop) apply(wanted map[netip.Addr]Config) error {
	if l.closing {
		return ErrClosed
	}
	now := time.Now()
	for peer, s := range l.sessions {
		if _, ok := wanted[peer]; !ok {
			l.dismiss(s)
		}
	}
	for peer, c := range wanted {
		s := l.sessions[peer]
		if s != nil && s.config.Local == c.Local && s.config.Multihop == c.Multihop {
			s.configure(c.Interval, c.Multiplier)
			s.config = c
			continue
		}
		if s != nil {
			l.dismiss(s)
		}
		l.sessions[peer] = newSession(c, l.discriminator(), now)
	}
	l.listen(now)
	return nil
}

// dismiss shuts a session down, and ends its reports.
func (l *loop) dismiss(s *session) {
	delete(l.sessions, s.config.Peer)
	s.shutDown()
	s.goodbyes = goodbyes
	l.adminDown = append(l.adminDown, s)
}

// discriminator returns an unused, unpredictable discriminator.
func (l *loop) discriminator() uint32 {
	for {
		d := rand.Uint32()
		if d != 0 && !l.any(func(s *session) bool { return s.discriminator == d }) {
			return d
		}
	}
}

// open makes the socket that a session sends from.
func (l *loop) open(s *session) error {
	taken := func(port int) bool {
		return l.any(func(s *session) bool { return s.fd >= 0 && s.sourcePort == port })
	}
	return l.inside(func() error { return s.open(taken) })
}

// any reports whether the condition holds for a session, including those in adminDown.
func (l *loop) any(holds func(*session) bool) bool {
	for _, s := range l.sessions {
		if holds(s) {
			return true
		}
	}
	return slices.ContainsFunc(l.adminDown, holds)
}

// listen opens the receiving sockets that sessions need, and closes the others.
func (l *loop) listen(now time.Time) {
	l.retry = time.Time{}
	missing := make(map[endpoint]error)
	for e, socket := range l.sockets {
		if !l.any(func(s *session) bool { return s.goodbyes == 0 && s.config.endpoint() == e }) {
			socket.close()
			delete(l.sockets, e)
		}
	}
	for _, s := range l.sessions {
		e := s.config.endpoint()
		if l.sockets[e] == nil && missing[e] == nil {
			var socket *listener
			err := l.inside(func() (err error) { socket, err = listen(e); return err })
			if err != nil {
				missing[e] = err
				l.retry = now.Add(retryListen)
			} else {
				l.sockets[e] = socket
			}
		}
		first := s.listenErr == nil && missing[e] != nil
		if s.listenErr = missing[e]; first {
			l.reporter.add(change{status: s.status(), trouble: true})
		}
	}
}
