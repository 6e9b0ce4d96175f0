package election

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/herald-vip/herald/lease"
)

// Config is one member's view of an election. It is the same on all members,
// but for Self and Bind.
type Config struct {
	// Self is this member's name, one of Members.
	Self string
	// Bind is where this member listens, by UDP and TCP: its address in Members,
	// which is also what the zero value stands for.
	Bind netip.AddrPort
	// Members are all who vote, this one among them, and where they are reached.
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
	Quorum lease.Quorum
}

// electorate is what the members must agree on.
func (c *Config) electorate() lease.Electorate {
	return lease.Electorate{Members: slices.Sorted(maps.Keys(c.Members)), Duration: c.Lease, Quorum: c.Quorum}
}

// clone copies what the caller might change.
func (c *Config) clone() *Config {
	copied := *c
	copied.Members = maps.Clone(c.Members)
	copied.Keys = slices.Clone(c.Keys)
	return &copied
}

// check says in one sentence what is wrong with a configuration.
func (c *Config) check() error {
	self, ok := c.Members[c.Self]
	if !ok {
		return fmt.Errorf("this node, %q, is not among the members: %s", c.Self,
			strings.Join(slices.Sorted(maps.Keys(c.Members)), ", "))
	}
	if err := c.checkMembers(self); err != nil {
		return err
	}
	if c.Bind.IsValid() && c.Bind != self {
		return fmt.Errorf("bind is %v, but the members expect %q at %v: make them the same", c.Bind, c.Self, self)
	}
	if err := c.checkKeys(); err != nil {
		return err
	}
	return c.electorate().Validate()
}

// checkMembers says what is wrong with the members' addresses.
func (c *Config) checkMembers(self netip.AddrPort) error {
	taken := make(map[netip.AddrPort]string)
	for _, name := range slices.Sorted(maps.Keys(c.Members)) {
		at := c.Members[name]
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

// checkKeys says what is wrong with the keys.
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
