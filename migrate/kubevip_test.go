package migrate_test

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/migrate"
	"github.com/herald-vip/herald/testenv/must"
)

// With members and key as options, a usual file of kubeadm needs no work.
func TestKubeVIPMembers(t *testing.T) {
	o := migrate.Options{
		Members: members("m1=10.3.0.1:7946", "m2=10.3.0.2:7946", "m3=10.3.0.3:7946"),
		KeyFile: "/etc/herald/key",
	}
	r := fromKubeVIP.read(t, "kubevip/testdata/arp.yaml", o)
	checkHonest(t, r)
	if !r.Complete() {
		t.Errorf("not complete:\n%s%s", r.Config, lines(r.Notes))
	}
	c, err := config.Parse("", r.Config, config.Hostname("m2"))
	must.Do(t, err)
	if diff := cmp.Diff(o.Members, c.Election.Members, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
}

// pod is a manifest of kube-vip; tests append to its environment.
const pod = `kind: Pod
spec:
  containers:
  - name: kube-vip
    env:
    - {name: cp_enable, value: "true"}
    - {name: vip_arp, value: "true"}
    - {name: address, value: 10.3.0.100}
`

// Text of the input cannot break out of its line in the output.
func TestWordsStayOnTheirLine(t *testing.T) {
	input := strings.Replace(pod, "10.3.0.100", `"x\nvips: []\u2028y\u0085z\u0007"`, 1) + `    - {name: "a\nb", value: c}` + "\n"
	r := fromKubeVIP.text(t, input, migrate.Options{File: "a\nb: c"})
	checkHonest(t, r)
	for line := range bytes.Lines(r.Config) {
		if bytes.HasPrefix(line, []byte("vips: []")) || bytes.HasPrefix(line, []byte("b: c")) {
			t.Errorf("the input added a line:\n%s", r.Config)
		}
	}
}

func FuzzKubeVIP(f *testing.F) {
	fromKubeVIP.fuzz(f, pod, "vip_arp=true\ncp_enable=1\naddress=a,b", "- - -", "a: &a [*a]", "spec: &s {containers: [*s]}",
		"bgp_enable=1\ncp_enable=1\naddress=::1\nbgp_peers=[::1]:1:::::1;1;1;1,unnumbered:a:2,[x]:1\nmpbgp_nexthop=fixed\nmpbgp_ipv4=x")
}
