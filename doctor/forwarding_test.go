package doctor

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/netutil/ruleset"
	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/netns"
)

// A filter that may drop forwarded packets is a finding, with the commands that let them through.
func TestFilters(t *testing.T) {
	docker := ruleset.ChainID{Family: "ip", Table: "filter", Name: "FORWARD"}
	docker6 := ruleset.ChainID{Family: "ip6", Table: "filter", Name: "FORWARD"}
	firewall := ruleset.ChainID{Family: "inet", Table: "firewall", Name: "forward"}
	bridged := func(c *config.Config) { c.Balancers = nil }
	for _, test := range []struct {
		name, file string
		change     func(*config.Config)
		chain      ruleset.ChainID
		why, cure  string // parts of them; empty without a finding
	}{
		{"Docker's", balancedFile, nil, docker, "to 10.0.1.1, 10.0.1.100 that", "if no rule accepts them: iptables -I FORWARD -m conntrack --ctorigdst 10.0.1.1 -j ACCEPT; iptables -I FORWARD -m conntrack --ctorigdst 10.0.1.100 -j ACCEPT"},
		{"of nft", balancedFile, nil, firewall, "may be dropped", "nft insert rule inet firewall forward ct original ip daddr 10.0.1.1 accept; "},
		{"of the other family", balancedFile, nil, docker6, "", ""},
		{"IPv6", workerFile, nil, docker6, "to fd00:1::1 that", "ip6tables -I FORWARD -m conntrack --ctorigdst fd00:1::1 -j ACCEPT"},
		{"127.0.0.1 and a proxy", workerFile, func(c *config.Config) { c.Balancers = c.Balancers[:2] }, firewall, "", ""},
		{"a bridge only", balancedFile, bridged, docker, "to 10.0.1.100 that", "--ctorigdst 10.0.1.100 "},
		{"external", balancedFile, func(c *config.Config) { c.LoadBalancer.Type = config.External }, docker, "to 10.0.1.100 that", ""},
		{"without a bridge", balancedFile, func(c *config.Config) { bridged(c); *c.VIPs[0].Bridge = false }, firewall, "", ""},
	} {
		c := parsed(t, test.file)
		if test.change != nil {
			test.change(c)
		}
		f := well(c)
		f.ForwardDrops = []ruleset.ChainID{test.chain}
		var found []Finding
		for _, got := range examine(c, f) {
			if got.Topic == "node" && got.Subject == "forwarding" {
				found = append(found, got)
			}
		}
		switch {
		case test.why == "" && len(found) == 0:
		case test.why == "" || len(found) != 1:
			t.Errorf("%s: found %+v", test.name, found)
		case found[0].Severity != Warning || !strings.Contains(found[0].Why, test.why) || !strings.Contains(found[0].Cure, test.cure):
			t.Errorf("%s: found %+v, want %q and %q", test.name, found[0], test.why, test.cure)
		}
	}
}

// The findings come from the kernel's chains, and the kernel accepts the commands of the cure.
func TestFiltersOfTheKernel(t *testing.T) {
	ns, _ := netns.New(t)
	err := netns.In(ns, func() error {
		for _, command := range []string{
			"iptables-nft -P FORWARD DROP",
			"nft add table inet firewall",
			"nft add chain inet firewall forward { type filter hook forward priority 0; policy drop; }",
		} {
			if out, err := exec.Command("sh", "-c", strings.NewReplacer("{", "'{", "}", "}'").Replace(command)).CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s", command, err, out)
			}
		}
		c, f := node(t, balancedFile)
		f.ForwardDrops, _ = ruleset.ForwardDrops()
		cures := 0
		var found findings
		examineFilters(c, f, &found)
		for _, got := range found.all {
			_, cure, _ := strings.Cut(got.Cure, "if no rule accepts them: ")
			for command := range strings.SplitSeq(cure, "; ") {
				cures++
				if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
					t.Errorf("%s: %v: %s", command, err, out)
				}
			}
		}
		if cures != 4 {
			t.Errorf("%d commands for %v, want one for each of two chains and two addresses", cures, f.ForwardDrops)
		}
		return nil
	})
	must.Do(t, err)
}
