package election

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/members"
)

// Config is one member's view of an election. It is the same on all members,
// except Self and Bind.
type Config struct {
	// Self is this member's name. If it is none of Members, this one has no vote: it
	// stands for leases, and those vote that have one.
	Self string
	// Bind is where this member listens, by UDP and TCP. With a vote, that is its address
	// in Members, which is also what the zero value stands for; without one, its own
	// address, at the members' port unless it says another, or for the zero value the one that it
	// reaches a member from at the start.
	Bind netip.AddrPort
	// Members are all who vote, and where they are reached.
	Members map[string]netip.AddrPort
	// Keys encrypt and decrypt all messages, by AES with 16, 24 or 32 bytes; no two are
	// the same. The first encrypts.
	Keys [][]byte
	// Insecure allows to have no Keys: anybody who can send from a member's
	// address then decides who holds what.
	Insecure bool
	// Lease is how long a lease is granted for. It is renewed after a third.
	Lease time.Duration
	// Quorum is how many members must agree.
	Quorum electorate.Quorum
	// Remember is a file in which an observer keeps the addresses of those that
	// offer something, to join by them when it is started again, beside Members, which may
	// all be gone by then. Empty is none.
	Remember string
	// State is the file in which this member keeps the electorate that it agreed to. Empty is none: in tests.
	State string
}

func (c *Config) electorate() electorate.Electorate {
	e := electorate.Electorate{Duration: c.Lease, Quorum: c.Quorum}
	for name, at := range c.Members {
		e.Members = append(e.Members, electorate.Member(name, at))
	}
	slices.Sort(e.Members)
	return e
}

// member is this member as the electorate has it, whether or not it votes.
func (c *Config) member() string { return electorate.Member(c.Self, c.home()) }

func (c *Config) votes() bool { return c.Members[c.Self].IsValid() }

// home is where the others reach this member. The port is 0 if the members have
// several and Bind has none.
func (c *Config) home() netip.AddrPort {
	if at, ok := c.Members[c.Self]; ok {
		return at
	}
	if c.Bind.Port() != 0 {
		return c.Bind
	}
	port := uint16(0)
	for _, at := range c.Members {
		if port != 0 && port != at.Port() {
			return netip.AddrPortFrom(c.Bind.Addr(), 0)
		}
		port = at.Port()
	}
	return netip.AddrPortFrom(c.Bind.Addr(), port)
}

// reachFrom is the address by which this node reaches one of the members, without a port.
func (c *Config) reachFrom() (netip.AddrPort, error) {
	var failed []error
	for _, name := range slices.Sorted(maps.Keys(c.Members)) {
		conn, err := net.Dial("udp", c.Members[name].String()) // which sends nothing
		if err != nil {
			failed = append(failed, err)
			continue
		}
		defer conn.Close()
		return netip.AddrPortFrom(conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), 0), nil
	}
	return netip.AddrPort{}, fmt.Errorf("bind is not set and cannot be guessed, as this node reaches no member: %w", errors.Join(failed...))
}

func (c *Config) observers() int {
	if c.Insecure {
		return 0
	}
	return members.MaxObservers
}

func (c *Config) clone() *Config {
	copied := *c
	copied.Members = maps.Clone(c.Members)
	copied.Keys = slices.Clone(c.Keys)
	return &copied
}

// check says in one sentence what is wrong with a configuration.
func (c *Config) check() error {
	if err := c.checkObserver(); err != nil {
		return err
	}
	if err := c.checkMembers(); err != nil {
		return err
	}
	if self := c.home(); c.votes() && c.Bind.IsValid() && c.Bind != self {
		return fmt.Errorf("bind is %v, but the members expect %q at %v: make them the same", c.Bind, c.Self, self)
	}
	if err := c.checkKeys(); err != nil {
		return err
	}
	return c.electorate().Validate()
}

func (c *Config) checkObserver() error {
	self := c.home()
	switch {
	case c.votes():
		return nil
	case !self.Addr().IsValid():
		return fmt.Errorf("this node, %q, is not among the members (%s) and has no vote: set bind to its address, or make it a member",
			c.Self, strings.Join(slices.Sorted(maps.Keys(c.Members)), ", "))
	case len(c.Members) > 0 && self.Port() == 0:
		return fmt.Errorf("bind, %v, needs a port: the members have several", self.Addr())
	case c.Insecure:
		return fmt.Errorf("this node, %q, is not among the members and can join them only with the key: set keyFile, or make it a member", c.Self)
	case c.Quorum == electorate.None:
		return fmt.Errorf("this node, %q, is not among the members and gets no lease with quorum none: make it a member, or set quorum to majority", c.Self)
	}
	return nil
}

func (c *Config) checkMembers() error {
	self := c.home()
	taken := make(map[netip.AddrPort]string)
	names := slices.Sorted(maps.Keys(c.Members))
	if !c.votes() && len(names) > 0 {
		names = append(names, c.Self)
	}
	for _, name := range names {
		at, ok := c.Members[name]
		if !ok {
			at = self
		}
		switch addr := at.Addr(); {
		case !at.IsValid() || at.Port() == 0:
			return fmt.Errorf("member %q needs an address and a port, it has %v", name, at)
		case addr.IsUnspecified() || addr.IsMulticast():
			return fmt.Errorf("member %q has the address %v, which nobody can be reached at", name, addr)
		case addr.Is4In6():
			return fmt.Errorf("member %q has the address %v: write it as %v", name, addr, addr.Unmap())
		case addr.Zone() != "" || addr.IsLinkLocalUnicast() && addr.Is6():
			return fmt.Errorf("member %q has the link-local address %v: give it another", name, addr)
		case addr.Is4() != self.Addr().Is4():
			return fmt.Errorf("member %q has the address %v and this node %v: an election is either IPv4 or IPv6", name, addr, self.Addr())
		}
		if other, ok := taken[at]; ok {
			return fmt.Errorf("members %q and %q have the same address, %v", other, name, at)
		}
		taken[at] = name
	}
	return nil
}

func (c *Config) checkKeys() error {
	switch {
	case len(c.Keys) == 0 && !c.Insecure:
		return errors.New("there is no key: set keyFile to a file that `herald keygen` wrote, the same on all members")
	case len(c.Keys) > 0 && c.Insecure:
		return errors.New("insecure does not go with a key: remove the one or the other")
	}
	for i, key := range c.Keys {
		if err := checkKey(key); err != nil {
			return err
		}
		if slices.ContainsFunc(c.Keys[:i], func(other []byte) bool { return bytes.Equal(key, other) }) {
			return fmt.Errorf("key %d is there twice: remove one", i+1)
		}
	}
	return nil
}
