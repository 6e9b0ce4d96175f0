package ruleset

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/herald-vip/herald/testenv/netns"
)

// ForwardDrops finds every chain that drops forwarded packets by policy, whether nft or iptables-nft made it.
func TestForwardDrops(t *testing.T) {
	ns, _ := netns.New(t)
	drops := func() string {
		t.Helper()
		var all []ChainID
		if err := netns.In(ns, func() (err error) { all, err = ForwardDrops(); return err }); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(all)
	}
	run := func(input, name string, args ...string) {
		t.Helper()
		err := netns.In(ns, func() error {
			cmd := exec.Command(name, args...)
			cmd.Stdin = strings.NewReader(input)
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w: %s", name, err, out)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := drops(); got != "[]" {
		t.Errorf("without tables: %s, want no chains", got)
	}
	run(`
table inet harmless {
	chain forward { type filter hook forward priority 0; policy accept; drop; }
	chain input { type filter hook input priority 0; policy drop; }
	chain mine { drop; }
}
table bridge other {
	chain forward { type filter hook forward priority 0; policy drop; }
}
`, "nft", "-f", "-")
	if got := drops(); got != "[]" {
		t.Errorf("without a dropping forward policy: %s, want no chains", got)
	}
	run("", "iptables-nft", "-P", "FORWARD", "DROP")
	run(`
table ip6 six {
	chain pass { type filter hook forward priority 0; policy drop; }
}
table inet firewall {
	chain forward { type filter hook forward priority 10; policy drop; }
}
`, "nft", "-f", "-")
	if got, want := drops(), "[inet firewall forward ip filter FORWARD ip6 six pass]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
