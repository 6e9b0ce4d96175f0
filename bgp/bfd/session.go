package bfd

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/internal/seconds"
	"github.com/herald-vip/herald/internal/wake"
)

const (
	// goodbyes is the number of packets that announce a shutdown, goodbyeGap the time between two.
	goodbyes   = 3
	goodbyeGap = 10 * time.Millisecond
)

// session is a machine with a socket to send from. The loop owns it.
type session struct {
	machine
	config Config
	// goodbyes counts the packets to send before the session ends.
	goodbyes int

	fd         int // of the sending socket, -1 while there is none
	sourcePort int // kept when the socket is opened anew
	local      netip.Addr
	zone       uint32  // index of the interface of a link-local peer
	chance     float64 // of the jitter of the next packet
	buffer     [packetLen]byte

	since              time.Time
	reported           report
	in, out, discarded uint64
	// The last errors, nil after a success.
	listenErr, sendErr, receiveErr error
	odd                            datagram // that receiveErr is about
}

// report is the content of the last notification of a session.
type report struct {
	state  State
	failed bool
}

func newSession(c Config, discriminator uint32, now time.Time) *session {
	return &session{
		machine: newMachine(discriminator, c.Interval, c.Multiplier, now),
		config:  c, fd: -1, since: now, reported: report{state: Down},
	}
}

// Reasons to discard a datagram with a well-formed packet.
var (
	errTTL     = errors.New("the TTL is too low")
	errAddress = errors.New("sent to another local address")
	errForeign = errors.New("the peer's packets belong to another session: it still has an earlier one, or only one end has multihop")
	errUnknown = errors.New("the peer has restarted, or another host sends from its address")
)

// check returns why a well-formed packet from the peer's address is discarded. Its discriminator, if set (RFC 5880
// section 6.8.6), and its port tell its session.
func (s *session) check(d *datagram, p *Packet, port bool) error {
	switch {
	case !port || p.YourDiscriminator != 0 && p.YourDiscriminator != s.discriminator:
		return errForeign
	case d.ttl < int(s.config.minTTL()):
		return errTTL
	case p.YourDiscriminator == 0 && s.local.IsValid() && d.dst != s.local.WithZone(""):
		return errAddress
	case p.YourDiscriminator == 0 && s.state == Up && p.MyDiscriminator != s.remote.MyDiscriminator:
		// A sender that does not know the session cannot end it. A restarted peer
		// waits for the detection time, like a dead one.
		return errUnknown
	}
	return nil
}

// due returns when the session needs to act next; zero means only on a packet.
func (s *session) due() time.Time {
	if s.goodbyes > 0 {
		return s.sent.Add(goodbyeGap)
	}
	return wake.Earlier(s.deadline(), s.next(s.chance))
}

// act does the due work. It calls open if there is no socket.
func (s *session) act(now time.Time, open func(*session) error) {
	if s.goodbyes > 0 {
		if s.urgent || !now.Before(s.due()) {
			s.goodbyes--
			s.send(now, open)
		}
		return
	}
	s.expire(now)
	if wake.Due(now, s.next(s.chance)) {
		s.send(now, open)
	}
}

// send sends a packet. An error goes to the status, and the next packet retries.
func (s *session) send(now time.Time, open func(*session) error) {
	p := s.packet(now)
	p.Encode(&s.buffer)
	s.chance = rand.Float64()
	if s.fd < 0 {
		if s.sendErr = open(s); s.sendErr != nil {
			return
		}
	}
	_, s.sendErr = unix.Write(s.fd, s.buffer[:])
	err := s.sendErr
	if err == unix.ECONNREFUSED {
		// The error was about an earlier packet; this one was not sent.
		_, err = unix.Write(s.fd, s.buffer[:])
	}
	switch err {
	case nil:
		s.out++
	case unix.ENOBUFS, unix.EAGAIN: // temporary
	default:
		s.close() // the next packet looks the route up again
	}
}

// close ends the sending socket.
func (s *session) close() {
	if s.fd >= 0 {
		_ = unix.Close(s.fd)
	}
	s.fd, s.local = -1, netip.Addr{}
}

func (s *session) status() Status {
	return Status{
		Peer: s.config.Peer, Local: s.local,
		State: s.state, Remote: s.remote.State, Since: s.since, Failed: s.failed, Diagnostic: s.diag, Reason: s.reason(),
		TxInterval: seconds.Duration(s.txInterval()), DetectionTime: seconds.Duration(s.detectionTime()),
		Downs: s.downs, In: s.in, Out: s.out, Discarded: s.discarded,
	}
}

// reason returns why the session is not up, or the problem of a session that is up.
func (s *session) reason() string {
	peer, port := s.config.Peer, s.config.port()
	switch {
	case errors.Is(s.listenErr, unix.EADDRINUSE):
		return fmt.Sprintf("cannot listen on UDP port %d: %v: another BFD daemon runs on this host", port, s.listenErr)
	case s.listenErr != nil:
		return fmt.Sprintf("cannot listen on UDP port %d: %v", port, s.listenErr)
	case s.sendErr == unix.ECONNREFUSED && s.state != Up:
		return fmt.Sprintf("%v does not listen on UDP port %d: BFD is not enabled there", peer, port)
	case s.sendErr != nil:
		return fmt.Sprintf("cannot send to %v: %v", peer, s.sendErr)
	case s.state == Up:
		return ""
	case s.state == AdminDown:
		return "shut down"
	case s.known() && s.remote.State == AdminDown:
		return "the peer has shut the session down"
	case s.known() && s.remote.Diagnostic == DetectionTimeExpired:
		return "the peer receives no packets from this node"
	case s.known():
		return fmt.Sprintf("the peer says that the session is %v (%v)", s.remote.State, s.remote.Diagnostic)
	case s.receiveErr == errTTL:
		return fmt.Sprintf("packets of %v arrive with a TTL of %d, but at least %d is required: it is further away than configured, or another host sends them",
			peer, s.odd.ttl, s.config.minTTL())
	case s.receiveErr == errAddress:
		return fmt.Sprintf("%v sends to %v and gets packets from %v: set the local address", peer, s.odd.dst, s.local)
	case s.receiveErr != nil:
		return fmt.Sprintf("a packet of %v is discarded: %v", peer, s.receiveErr)
	case s.in > 0:
		return fmt.Sprintf("no packet from %v since %s", peer, s.receivedAt.Format("15:04:05.000"))
	}
	return fmt.Sprintf("no packet from %v on UDP port %d yet", peer, port)
}
