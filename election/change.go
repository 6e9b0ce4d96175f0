package election

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/herald-vip/herald/election/electorate"
)

// reconfigure changes all settings that can change while the node runs, or none.
func (n *node) reconfigure(c *Config) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	old := n.config
	switch self, now := old.home(), c.home(); {
	case c.Self != old.Self:
		return fmt.Errorf("the name of this node cannot change from %q to %q while the election runs: restart herald", old.Self, c.Self)
	case now != self:
		return fmt.Errorf("the address of this node cannot change from %v to %v while the election runs: restart herald", self, now)
	case c.Insecure && !old.Insecure:
		return errors.New("encryption cannot be turned off while the election runs: restart herald")
	case !c.Insecure && old.Insecure:
		return errors.New("encryption cannot be turned on while the election runs: restart herald")
	case c.Open() != old.Open():
		return errors.New("members and join cannot replace each other while the election runs: restart herald")
	}
	c.identity = old.identity
	now := n.tick()
	if err := n.machine.Reconfigure(now, c.electorate(n.named)); err != nil {
		return err
	}
	if c.Open() {
		n.machine.SetOpen(c.openElectorate())
	}
	n.config = c
	n.admit(now)
	if !slices.EqualFunc(c.Keys, old.Keys, bytes.Equal) {
		n.admission.ForgetNamed()
		if err := rotateKeys(n.ring, c.Keys); err != nil {
			return err // does not happen for valid keys
		}
		n.log.Info("election keys changed", "keys", len(c.Keys))
	}
	n.exchange.SetLease(c.Lease)
	n.warn(old)
	n.flush()
	return nil
}

// warn logs unusual choices of the operator when they are made. old is the previous configuration, or nil.
func (n *node) warn(old *Config) {
	if n.config.Insecure && old == nil {
		n.log.Warn("THE ELECTION IS NOT ENCRYPTED: anyone who can send from a member's address decides where the VIPs are; " +
			"run `herald keygen` and set keyFile")
	}
	if n.config.Quorum == electorate.None && (old == nil || old.Quorum != electorate.None) {
		n.log.Warn("quorum is none: members that cannot reach each other each hold the VIPs")
	}
}

// present reports whether this node has an address; true if that is unknown.
func present(addr netip.Addr) bool {
	all, err := net.InterfaceAddrs()
	if err != nil || addr.IsLoopback() {
		return true
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
