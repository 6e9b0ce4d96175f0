package fence

import (
	"errors"
	"fmt"
	"net/netip"
)

// errNoServices is the error of Serve without Options.Services.
var errNoServices = errors.New("this fence was made without Options.Services")

// Serve makes addrs, and no others, those of Services: all that any node answers for,
// whether or not this one may. The fence gates their ARP and neighbour discovery, like
// those of Guard. Packets to them need no opening: kube-proxy, in any of its modes,
// directs them to a Service's endpoints on every node that they reach, also on one that
// has just stopped answering.
//
// A packet that nothing directs would reach this host itself if it has the address on a
// link: whatever listens on all addresses, such as sshd. Unless Options.HostPorts, the
// fence refuses TCP by a reset, and other packets by ICMP; ICMP itself passes. It counts
// as directed what has another destination by then, and what IPVS takes.
//
// After an error the caller calls Serve again.
func (f *Fence) Serve(addrs ...netip.Addr) error {
	served, err := addrSet(addrs)
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
	if err := f.updateGated(served); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}
