package election

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/herald-vip/herald/lease"
)

// reconfigure changes what can be changed while the node works, all or nothing.
func (n *node) reconfigure(c *Config) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	was := n.config
	switch self, now := was.home(), c.home(); {
	case c.Self != was.Self:
		return fmt.Errorf("the name of this node cannot change from %q to %q while the election runs: restart herald", was.Self, c.Self)
	case now != self:
		return fmt.Errorf("the address of this node cannot change from %v to %v while the election runs: restart herald", self, now)
	case c.Insecure && !was.Insecure:
		return errors.New("encryption cannot be given up while the election runs: restart herald")
	case !c.Insecure && was.Insecure:
		return errors.New("encryption cannot begin while the election runs: restart herald")
	}
	now := time.Now()
	n.machine.Tick(now)
	if err := n.machine.Reconfigure(now, c.electorate()); err != nil {
		return err
	}
	n.config = c
	n.admit(now)
	if !sameKeys(c.Keys, was.Keys) {
		n.gate.forget()
		if err := rotate(n.ring, c.Keys); err != nil {
			return err // not for keys that were checked
		}
		n.log.Info("election messages are encrypted with other keys", "keys", len(c.Keys))
	}
	n.offering.follow(c.Lease)
	n.warn(was)
	n.flush()
	return nil
}

// admit lets the configured members in, and those whose votes the machine still
// counts: who is no member any more is heard until all know that. Those that are not
// configured and have joined are let in as long as the machine knows them. Of a member
// without a vote, nobody is configured but itself: who votes may change without its
// being told, and it only needs somebody to ask. The mutex is held.
func (n *node) admit(now time.Time) {
	var seeds map[string]netip.AddrPort
	members := maps.Clone(n.config.Members)
	if !n.config.votes() {
		seeds, members = members, make(map[string]netip.AddrPort)
		for name, at := range n.recalled {
			if at != n.config.home() && at.Addr().Is4() == n.config.home().Addr().Is4() {
				seeds[name+" as remembered"] = at // which is one more place to look, if it is another
			}
		}
	}
	members[n.config.Self] = n.config.home()
	taken := make(map[netip.AddrPort]bool)
	for _, at := range members {
		taken[at] = true
	}
	known := make(map[string]bool)
	for _, m := range n.machine.Members(now) {
		known[m.Name] = true
		if at, ok := n.members[m.Name]; ok && m.Voter && !taken[at] && !members[m.Name].IsValid() {
			members[m.Name] = at
		}
	}
	gone := n.roster.keep(known)
	if maps.Equal(members, n.members) && maps.Equal(seeds, n.seeds) && !gone {
		return
	}
	if !gone {
		n.gate.forget()
	}
	n.members, n.seeds = members, seeds
	n.roster.configure(members, seeds)
}

// rotate makes these the ring's keys. Memberlist decrypts meanwhile, with a list
// of keys that RemoveKey changes under its hands unless the key is the last: so
// only the last is ever removed, after those that stay have gone ahead of it.
func rotate(ring *memberlist.Keyring, keys [][]byte) error {
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

// warn says what the operator has chosen that others would not, when it is
// chosen: was is the configuration before, or nil.
func (n *node) warn(was *Config) {
	if n.config.Insecure && was == nil {
		n.log.Warn("THE ELECTION IS NOT ENCRYPTED: whoever can send from a member's address decides who holds the VIPs; " +
			"run `herald keygen` and set keyFile")
	}
	if n.config.Quorum == lease.None && (was == nil || was.Quorum != lease.None) {
		n.log.Warn("quorum is none: members that cannot reach each other each hold the VIPs")
	}
	if at := n.config.home().Addr(); was == nil && !present(at) {
		n.log.Warn("no interface has the election's address yet", "address", at)
	}
}

// present reports whether an address is on an interface of this host.
func present(addr netip.Addr) bool {
	all, err := net.InterfaceAddrs()
	if err != nil || addr.IsLoopback() {
		return true // nothing to warn of
	}
	return slices.ContainsFunc(all, func(a net.Addr) bool {
		ip, ok := a.(*net.IPNet)
		if !ok {
			return false
		}
		have, _ := netip.AddrFromSlice(ip.IP)
		return have.Unmap() == addr
	})
}
