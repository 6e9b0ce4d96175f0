package election

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/hashicorp/memberlist"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/election/members"
)

// Config is one member's view of an election. Settings, except Bind, are the same on all members, and package config
// has validated them.
type Config struct {
	electorate.Settings
	// Self is this member's name. A member that is not in Members has no vote: it campaigns, and the voters decide.
	Self string
	// Observer makes this member request no vote, if there are no Members.
	Observer bool
	// Remember is the file where an observer stores the addresses of advertising members, for joining at the next
	// start. All configured Members may be gone by then. Empty: none.
	Remember string
	// State is the file where the member stores its identity and the committed electorate. Empty: none, in tests.
	State string

	member string // as which this node takes part, in the form of an electorate; set at its start
}

func (c *Config) openElectorate() lease.Open {
	open := lease.Open{Bootstrap: c.Bootstrap, Observer: c.Observer}
	if c.Forget != nil {
		open.Forget = *c.Forget
	}
	return open
}

// votes reports whether the configuration lists this member as a voter.
func (c *Config) votes() bool { return c.Members[c.Self].IsValid() }

// votesIn reports whether this member is listed as a voter, or votes in an electorate.
func (c *Config) votesIn(active *electorate.Electorate) bool {
	return c.votes() || active != nil && active.Has(c.member)
}

// seeds returns the addresses at which this member looks for others, by name, or by address for an open electorate.
func (c *Config) seeds() map[string]netip.AddrPort {
	seeds := maps.Clone(c.Members)
	if seeds == nil {
		seeds = make(map[string]netip.AddrPort)
	}
	for _, at := range c.Join {
		if at != c.home() {
			seeds[at.String()] = at
		}
	}
	return seeds
}

// places returns the configured addresses of other members.
func (c *Config) places() []netip.AddrPort {
	return slices.Concat(slices.Collect(maps.Values(c.Members)), c.Join)
}

// home returns the address at which the others reach this member. The port is 0 if the members have several and Bind
// has none.
func (c *Config) home() netip.AddrPort {
	if at, ok := c.Members[c.Self]; ok {
		return at
	}
	if c.Bind.Port() != 0 {
		return c.Bind
	}
	port := uint16(0)
	for _, at := range c.places() {
		if port != 0 && port != at.Port() {
			return netip.AddrPortFrom(c.Bind.Addr(), 0)
		}
		port = at.Port()
	}
	return netip.AddrPortFrom(c.Bind.Addr(), port)
}

// reachFrom returns the address from which this node reaches a member, without a port.
func (c *Config) reachFrom() (netip.AddrPort, error) {
	var failed []error
	for _, at := range slices.SortedFunc(slices.Values(c.places()), netip.AddrPort.Compare) {
		conn, err := net.Dial("udp", at.String()) // sends nothing
		if err != nil {
			failed = append(failed, err)
			continue
		}
		defer conn.Close()
		return netip.AddrPortFrom(conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), 0), nil
	}
	return netip.AddrPort{}, fmt.Errorf("bind is not set and cannot be guessed, as this node reaches no member: %w", errors.Join(failed...))
}

// homeBefore returns the address of this member when it got its vote, if the node still has that address; else the zero
// value. A node that stays where it was is found at once.
func (c *Config) homeBefore() netip.AddrPort {
	s, _ := readState(c.State) // the start reports the error
	at := electorate.Address(s.before(c.Self))
	if !at.IsValid() || !present(at.Addr()) {
		return netip.AddrPort{}
	}
	return at
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
	copied.Join = slices.Clone(c.Join)
	copied.Keys = slices.Clone(c.Keys)
	return &copied
}

// check returns the first mistake that only shows at the start, when the address of this member is known.
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
	if len(c.Keys) == 0 && !c.Insecure { // the file of the keys is not part of the settings
		return errors.New("there is no key: set keyFile to a file that `herald keygen` wrote, the same on all members")
	}
	return c.Widest(c.Self, c.home()).Validate()
}

func (c *Config) checkObserver() error {
	self := c.home()
	switch {
	case c.votes():
		return nil
	case c.Open() && (!self.Addr().IsValid() || self.Addr().IsUnspecified() || self.Port() == 0):
		return fmt.Errorf("bind is %v: members of an open electorate need to know the address and port of this node", self)
	case c.Open() && slices.ContainsFunc(c.Join, func(at netip.AddrPort) bool { return at.Addr().Is4() != self.Addr().Is4() }):
		return fmt.Errorf("join has %v and this node %v: an election is either IPv4 or IPv6", c.Join, self.Addr())
	case c.Open():
		return nil
	case !self.Addr().IsValid():
		return fmt.Errorf("this node, %q, is not among the members (%s) and has no vote: set bind to its address, or make it a member",
			c.Self, strings.Join(slices.Sorted(maps.Keys(c.Members)), ", "))
	case self.Port() == 0:
		return fmt.Errorf("bind, %v, needs a port: the members have several", self.Addr())
	case c.Quorum == electorate.None:
		return fmt.Errorf("this node, %q, is not among the members and gets no lease with quorum none: make it a member, or set quorum to majority", c.Self)
	}
	return nil
}

func (c *Config) checkMembers() error {
	self := c.home()
	taken := make(map[netip.AddrPort]string)
	all := maps.Clone(c.Members)
	if !c.votes() && len(all) > 0 {
		all[c.Self] = self
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		at := all[name]
		switch addr := at.Addr(); {
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

// keySize is the size of new keys in bytes: AES-256.
const keySize = 32

// NewKey returns a random key in the form of a line of a key file, without the newline.
func NewKey() (string, error) {
	key := make([]byte, keySize)
	if _, err := rand.Read(key); err != nil {
		return "", fmt.Errorf("make a key: %w", err)
	}
	return base64.StdEncoding.EncodeToString(key), nil
}

// Exposed describes a key file that users other than its owner may access. It is empty if none may, or without a file.
func Exposed(file string) string {
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm()&0o077 == 0 {
		return ""
	}
	return fmt.Sprintf("%s has mode %04o, and anyone who reads the key in it can take every VIP: chmod 600 %s", file, info.Mode().Perm(), file)
}

// rotateKeys replaces the ring's keys while memberlist decrypts with them. RemoveKey modifies the list in use unless it
// removes the last key. So rotateKeys moves the remaining keys to the front and only removes the last one.
func rotateKeys(ring *memberlist.Keyring, keys [][]byte) error {
	for _, key := range keys {
		if err := ring.AddKey(key); err != nil {
			return err
		}
	}
	if err := ring.UseKey(keys[0]); err != nil {
		return err
	}
	stale := func(key []byte) bool {
		return !slices.ContainsFunc(keys, func(kept []byte) bool { return bytes.Equal(key, kept) })
	}
	for all := ring.GetKeys(); slices.ContainsFunc(all, stale); all = ring.GetKeys() {
		last, move := all[len(all)-1], ring.UseKey
		if stale(last) {
			move = ring.RemoveKey
		}
		if err := move(last); err != nil {
			return err
		}
	}
	return ring.UseKey(keys[0])
}
