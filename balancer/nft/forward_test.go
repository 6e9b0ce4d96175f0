package nft

import (
	"testing"
	"time"

	"github.com/herald-vip/herald/balancer"
)

// A filter that drops forwarded packets blocks other hosts from a VIP. The rule that herald doctor recommends lets
// them through.
func TestForwardPolicy(t *testing.T) {
	s := newSite(t)
	s.holds(s.node)
	p := s.node.plane(Options{})
	s.must(p.Apply([]balancer.Service{s.service(vip4)}))
	s.client.served(vip4, 3)
	for _, filter := range []struct{ drop, accept, undo string }{
		{"iptables-nft -P FORWARD DROP", "iptables-nft -I FORWARD -m conntrack --ctorigdst " + vip4.Addr().String() + " -j ACCEPT", "nft delete table ip filter"},
		{"nft -f -", "nft insert rule inet firewall forward ct original ip daddr " + vip4.Addr().String() + " accept", "nft delete table inet firewall"},
	} {
		const firewall = `
table inet firewall {
	chain forward { type filter hook forward priority 0; policy drop; }
}
`
		s.node.Run(firewall, "sh", "-c", filter.drop)
		if c, err := s.client.dialFor(vip4, time.Second); err == nil {
			t.Errorf("after %q: %s got a connection", filter.drop, c.server)
		}
		s.node.served(vip4, 3)
		s.node.Run("", "sh", "-c", filter.accept)
		s.client.served(vip4, 3)
		s.node.Run("", "sh", "-c", filter.undo)
	}
}

// A balancer reports that forwarding cannot be switched on for a family, and the bridge opens no VIP of that family.
func TestForwardingCannotBeSwitchedOn(t *testing.T) {
	s := newSite(t)
	s.node.Run("", "sysctl", "-qw", "net.ipv4.ip_forward=0", "net.ipv6.conf.all.forwarding=0", "net.ipv6.conf.eth0.accept_ra=0")
	s.node.start("confined")
}
