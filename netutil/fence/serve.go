package fence

import (
	"errors"
	"fmt"
	"net/netip"
)

// errNoServices is FilterServices' error without Options.Services.
var errNoServices = errors.New("this fence was made without Options.Services")

// FilterServices replaces the addresses of Services: all that any node answers for, even if
// this node may not hold them. The fence filters their ARP and neighbour discovery like that of
// VIPs. Packets to them need no opening: kube-proxy, in each of its modes, forwards them to the Service's
// endpoints from any node, even from a node that has just stopped answering.
//
// If this host has the address on a link, packets that kube-proxy does not forward would reach the
// host itself: any program that listens on all addresses, such as sshd. Unless Options.HostPorts is
// set, the fence rejects TCP with a reset and other packets with ICMP. ICMP itself passes. Packets count as
// forwarded if their destination was translated, or if IPVS takes them.
//
// After an error call FilterServices again.
func (f *Fence) FilterServices(addrs ...netip.Addr) error {
	services, err := addrSet(addrs)
	if err != nil {
		return fmt.Errorf("filter Services: %w", err)
	}
	f.keeper.Lock()
	defer f.keeper.Unlock()
	if !f.opts.Services {
		if len(addrs) == 0 {
			return nil
		}
		return fmt.Errorf("filter Services: %w", errNoServices)
	}
	return failed("filter Services", f.updateFiltered(services))
}
