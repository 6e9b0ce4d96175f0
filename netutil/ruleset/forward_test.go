package ruleset

import (
	"fmt"
	"testing"

	"github.com/herald-vip/herald/testenv/netns"
	"github.com/herald-vip/herald/testenv/nettest"
)

// ForwardDrops finds every chain that drops forwarded packets by policy, whether nft or iptables-nft made it.
func TestForwardDrops(t *testing.T) {
	h := nettest.NewHost(t)
	drops := func() string {
		t.Helper()
		var all []ChainID
		h.Must(netns.In(h.NS, func() (err error) { all, err = ForwardDrops(); return err }))
		return fmt.Sprint(all)
	}
	if got := drops(); got != "[]" {
		t.Errorf("without tables: %s, want no chains", got)
	}
	h.NFT(`
table inet harmless {
	chain forward { type filter hook forward priority 0; policy accept; drop; }
	chain input { type filter hook input priority 0; policy drop; }
	chain mine { drop; }
}
table bridge other {
	chain forward { type filter hook forward priority 0; policy drop; }
}
`)
	if got := drops(); got != "[]" {
		t.Errorf("without a dropping forward policy: %s, want no chains", got)
	}
	h.Run("", "iptables-nft", "-P", "FORWARD", "DROP")
	h.NFT(`
table ip6 six {
	chain pass { type filter hook forward priority 0; policy drop; }
}
table inet firewall {
	chain forward { type filter hook forward priority 10; policy drop; }
}
`)
	if got, want := drops(), "[inet firewall forward ip filter FORWARD ip6 six pass]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
