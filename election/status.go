package election

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/herald-vip/herald/lease"
)

// Status is what this member knows of the election.
type Status struct {
	Running   bool           // there is a configuration; without one, the rest is zero
	Address   netip.AddrPort // where this member listens
	Encrypted bool
	Lease     lease.Status // the leases, and the members as their lease messages show them
	Members   []Member     // the same members in the same order, with what else is known of them
	Dropped   Dropped
}

// Member is one of the members: of those configured, which vote, and of those
// without a vote that have been heard.
type Member struct {
	lease.MemberStatus
	Address  netip.AddrPort
	Alive    bool               // it is heard; always true for this member itself
	TCPOnly  bool               // it is not alive and yet answers by TCP: something on the way drops UDP
	Hardware []net.HardwareAddr // where its VIPs may be seen, as it says itself
	Standing int                // how many leases it stands for, as it says itself
}

// Dropped counts what this member did not take, or could not send, since the
// election began.
type Dropped struct {
	Unknown    uint64 // packets and connections from addresses that no other member has
	Unreadable uint64 // from a member's address, but encrypted with another key or not at all
	Malformed  uint64 // decrypted, and yet neither a lease message nor an offer
	Refused    uint64 // news of nodes that are no members, or at other addresses
	Ignored    uint64 // lease messages and offers that are old, repeated, or from no member
	Unsent     uint64 // lease messages and offers that this member could not send
}

// Status describes the election at this moment.
func (e *Election) Status() Status {
	e.mu.Lock()
	running := e.node
	e.mu.Unlock()
	if running == nil {
		return Status{}
	}
	return running.status()
}

// status describes the node.
func (n *node) status() Status {
	n.mu.Lock()
	now := time.Now()
	n.machine.Tick(now)
	n.flush()
	of := n.machine.Status(now)
	config := n.config
	n.mu.Unlock()
	if !config.votes() && n.roster.standing() == 0 {
		of.Lag = "" // its list is only where it looks for the others
	}

	s := Status{
		Running: true, Address: config.home(), Encrypted: !config.Insecure, Lease: of,
		Dropped: Dropped{
			Unknown: n.gate.unknown.Load(), Unreadable: n.gate.unreadable.Load(), Malformed: n.gate.malformed.Load(),
			Refused: n.gate.refused.Load(), Ignored: of.Ignored + n.offering.ignored(), Unsent: n.gate.unsent.Load(),
		},
	}
	for _, m := range of.Members {
		c, answers := n.roster.last(m.Name)
		at := n.roster.address(m.Name)
		alive := n.hears(now, m, config.votes(), patient(of.Active, of.Pending))
		tcpOnly := !alive && !answers.IsZero() && now.Sub(answers) >= patient(of.Active, of.Pending)
		if !alive {
			c.Standing = 0
		}
		switch {
		case m.Problem == "":
		case n.gate.mute(at.Addr()):
			m.Problem = "what it sends cannot be read: it has another key, or none (" + m.Problem + ")"
		case tcpOnly:
			m.Problem = fmt.Sprintf("UDP does not get through between this node and %s at %v, TCP does: let UDP port %d through the firewalls (%s)",
				m.Name, at, at.Port(), m.Problem)
		}
		s.Members = append(s.Members, Member{
			MemberStatus: m, Address: at, Alive: alive, TCPOnly: tcpOnly, Hardware: c.Hardware, Standing: c.Standing,
		})
	}
	return s
}

// hears reports whether a member is alive. Those that vote tell so all the time; one
// without a vote and the others need not, and then memberlist knows.
func (n *node) hears(now time.Time, m lease.MemberStatus, votes bool, patience time.Duration) bool {
	return now.Sub(m.Heard) < patience || !(votes && m.Voter) && n.roster.joined(m.Name)
}

// patient is how long a member may be silent that is alive, by the electorates in
// use and to come: members that live tell so three times in a lease.
func patient(electorates ...*lease.Electorate) time.Duration {
	d := patience
	for _, e := range electorates {
		if e != nil {
			d = max(d, e.Duration)
		}
	}
	return d
}

// Alive lists the members that are alive, with or without a vote, by their sorted
// names: those that are heard, and this one itself. It is empty while there
// is no configuration. It costs less than Status, and the observer is told when it
// changes.
func (e *Election) Alive() []string {
	e.mu.Lock()
	running := e.node
	e.mu.Unlock()
	if running == nil {
		return nil
	}
	return running.alive()
}

// alive lists the members that are alive.
func (n *node) alive() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	active, pending := n.machine.Electorates()
	var names []string
	for _, m := range n.machine.Members(now) {
		if n.hears(now, m, n.config.votes(), patient(active, pending)) {
			names = append(names, m.Name)
		}
	}
	return names
}

// Lease describes one lease at this moment.
func (e *Election) Lease(name string) lease.LeaseStatus {
	e.mu.Lock()
	running := e.node
	e.mu.Unlock()
	s := lease.LeaseStatus{Lease: name, Why: "the election has not begun, which takes an election section in the file of this node"}
	if running != nil {
		running.step(func(m *lease.Machine, now time.Time) { s = m.Lease(now, name) })
	}
	return s
}

// Hardware is where the VIPs of each member may be seen, as it has said itself
// since this one was started, those that are heard no more included.
func (e *Election) Hardware() map[string][]net.HardwareAddr {
	e.mu.Lock()
	running := e.node
	e.mu.Unlock()
	if running == nil {
		return nil
	}
	return running.roster.hardware()
}
