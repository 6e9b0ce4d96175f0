package fence

import (
	"errors"
	"fmt"
	"net/netip"
)

// errNoServices is what Serve says to who has not asked for it.
var errNoServices = errors.New("this fence was made without Options.Services")

// Serve makes addrs, and no others, those of Services; it is to name all that any
// node answers for, whether or not this one may. They are gated, like Guard's, as far
// as ARP and neighbour discovery go. Packets to them need no opening: what directs
// them to a Service's endpoints (kube-proxy, in any of its modes) does so on every
// node that they reach, also on one that has just stopped answering.
//
// What nothing directs would reach this host itself, on a link of which the address
// is: whatever listens on all addresses, such as sshd. It is refused unless
// Options.HostPorts: TCP by a reset, else by ICMP. ICMP itself passes. Taken for
// directed is what comes to this host with another destination by then, and what
// IPVS takes.
//
// After an error Serve is to be called again.
func (f *Fence) Serve(addrs ...netip.Addr) error {
	served, err := gateable(addrs)
	if err != nil {
		return fmt.Errorf("serve %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.services {
		if len(addrs) == 0 {
			return nil
		}
		return fmt.Errorf("serve: %w", errNoServices)
	}
	if err := f.gate(served); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}
