package arp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/herald-vip/herald/internal/wake"
	"github.com/herald-vip/herald/netutil/link"
)

// reopenEvery is the time between attempts to open a socket.
const reopenEvery = time.Second

// linkState is a link and the addresses on it. The Announcer's mutex guards it.
type linkState struct {
	name    string
	link    link.Link // zero while there is no link of this name
	src     mac       // hardware address of link
	up      bool      // frames can be sent and received
	entries map[netip.Addr]*entry
	wires   [2]wire         // by family; nil while not open
	watched [2][]netip.Addr // the wires' watched addresses
	reopen  time.Time       // time of the next attempt to open a wire; zero without one
	broken  bool            // a wire could not be opened
}

// entry returns the entry of an address, new if necessary.
func (s *linkState) entry(addr netip.Addr) *entry {
	e := s.entries[addr]
	if e == nil {
		e = &entry{addr: addr}
		s.entries[addr] = e
	}
	return e
}

// finding returns the Finding of a watched address.
func (s *linkState) finding(e *entry) Finding {
	f := Finding{Link: s.name, Addr: e.addr, State: e.watch.state, Count: e.watch.count}
	if len(e.watch.offenders) > 0 {
		f.MAC = e.watch.offenders[0].hardware()
	}
	if e.rivals(time.Now()) {
		f.Rival = e.rival.hardware()
	}
	return f
}

// usable returns the reason that frames cannot be sent now, nil if they can.
func (s *linkState) usable() error {
	switch {
	case s.link.Index == 0:
		return errors.New("there is no such link")
	case !s.link.Up:
		return errors.New("the link is down")
	case !s.up:
		return errors.New("the link has no Ethernet address")
	}
	return nil
}

// takeLink updates the state of the link. If the link became usable, or has another hardware address, it restarts
// announcements and probing.
func (s *linkState) takeLink(now time.Time, l link.Link, refresh time.Duration) {
	src, ethernet := macOf(l.MAC)
	up := l.Up && ethernet
	restart := up && (!s.up || l.Index != s.link.Index || src != s.src)
	if !up || l.Index != s.link.Index {
		s.closeWires()
	}
	s.link, s.src, s.up = l, src, up
	if restart {
		s.restart(now, refresh)
	}
}

// restart restarts bursts and probing.
func (s *linkState) restart(now time.Time, refresh time.Duration) {
	for _, e := range s.entries {
		if e.announced {
			e.schedule = startSchedule(now, refresh)
		}
		if e.watch != nil {
			e.watch.linkUp(now)
		}
	}
}

// closeWires interrupts the wires; their readers close them.
func (s *linkState) closeWires() {
	for f, w := range s.wires {
		if w != nil {
			w.interrupt()
		}
		s.wires[f], s.watched[f] = nil, nil
	}
	s.reopen = time.Time{}
}

// fitWires opens, changes and closes wires as the entries need them, on a usable link. It calls opened with each new
// wire.
func (s *linkState) fitWires(now time.Time, n network, opened func(family, wire)) error {
	var errs []error
	for _, f := range []family{inet4, inet6} {
		watched, needed := s.needs(f)
		switch w := s.wires[f]; {
		case w == nil && needed:
			w, err := n.open(s.link, f, watched)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			s.wires[f], s.watched[f] = w, watched
			opened(f, w)
		case w != nil && !needed:
			w.interrupt()
			s.wires[f], s.watched[f] = nil, nil
		case w != nil && !slices.Equal(watched, s.watched[f]):
			if err := w.watch(watched); err != nil {
				errs = append(errs, err)
				continue
			}
			s.watched[f] = watched
		}
	}
	s.reopen = time.Time{}
	if len(errs) > 0 {
		s.reopen = now.Add(reopenEvery)
	}
	return errors.Join(errs...)
}

// needs returns the watched addresses of a family, and whether it has any entries.
func (s *linkState) needs(f family) (watched []netip.Addr, any bool) {
	for addr, e := range s.entries {
		if familyOf(addr) == f {
			any = true
			if e.watch != nil {
				watched = append(watched, addr)
			}
		}
	}
	slices.SortFunc(watched, netip.Addr.Compare)
	return watched, any
}

// send sends frames about addr. It stops at the first error.
func (s *linkState) send(addr netip.Addr, frames ...[]byte) error {
	if err := s.usable(); err != nil {
		return err
	}
	w := s.wires[familyOf(addr)]
	if w == nil {
		return errors.New("the packet socket is not open")
	}
	for _, frame := range frames {
		if err := w.send(frame); err != nil {
			return fmt.Errorf("send: %w", err)
		}
	}
	return nil
}

// next returns the time of the next step; zero for never.
func (s *linkState) next() time.Time {
	if !s.up {
		return time.Time{}
	}
	next := s.reopen
	for _, e := range s.entries {
		next = wake.Earlier(next, e.next())
	}
	return next
}
