package migrate_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"github.com/herald-vip/herald/migrate"
	"github.com/herald-vip/herald/migrate/metallb"
)

// Each field of MetalLB has the effect in its row: it changes the result, or a note has the row's text.
func TestEachFieldOfMetalLB(t *testing.T) {
	values := map[string]string{ // differ from the base
		"addresses": "[10.7.0.0/24]", "autoAssign": "false", "avoidBuggyIPs": "true", "priority": "7", "namespaces": "[n]",
		"namespaceSelectors": "[{matchLabels: {a: b}}]", "serviceSelectors": "[{matchLabels: {a: b}}]", "protocol": "layer2",
		"bgpAdvertisements": "[{localPref: 7}]", "ipAddressPools": "[other]", "ipAddressPoolSelectors": "[{matchLabels: {is: other}}]",
		"aggregationLength": "24", "aggregationLengthV6": "64", "localPref": "7", "communities": `["1:2"]`, "peers": "[x]",
		"nodeSelectors": "[{matchLabels: {a: b}}]", "interfaces": "[eth7]",
		"peerAddress": "10.0.0.7", "interface": "eth7", "peerASN": "7", "dynamicASN": "internal", "myASN": "7", "localASN": "7", "peerPort": "7",
		"sourceAddress": "10.0.0.8", "holdTime": "7s", "keepaliveTime": "7s", "password": "s3cret", "passwordSecret": "{name: x, namespace: y}",
		"bfdProfile": "b", "ebgpMultiHop": "true", "dualStackAddressFamily": "true", "connectTime": "7s", "routerID": "7.7.7.7", "vrf": "red",
		"receiveInterval": "777", "transmitInterval": "777", "detectMultiplier": "7", "echoInterval": "7", "minimumTtl": "7",
	}
	nameOf := func(kind string) string {
		return cmp.Or(map[string]string{"BFDProfile": "b", "BGPPeer": "x"}[kind], "p")
	}
	base := func(kind, spec string) *migrate.Result {
		t.Helper()
		specs := map[string]string{
			"IPAddressPool": "{addresses: [10.1.0.0/24, \"fd00::/64\"]}", "BGPPeer": "{myASN: 1, peerASN: 2, peerAddress: 10.0.0.1}", "BGPAdvertisement": "{}", "L2Advertisement": "{}", "BFDProfile": "{}",
			"AddressPool": "{addresses: [10.1.0.0/24], protocol: bgp}", "Community": "{}",
		}
		var b strings.Builder
		for _, k := range []string{"IPAddressPool", "BGPAdvertisement", "L2Advertisement", "BGPPeer", "BFDProfile", "AddressPool", "Community"} {
			s := specs[k]
			switch {
			case k == kind:
				s = spec
			case k == "IPAddressPool" && kind == "AddressPool" || k == "AddressPool" && kind != "AddressPool":
				continue
			case (k == "BGPAdvertisement" || k == "L2Advertisement") && kind == "AddressPool":
				continue
			case k == "BGPPeer" && kind == "BFDProfile":
				s = "{myASN: 1, peerASN: 2, peerAddress: 10.0.0.1, bfdProfile: b}"
			case k == "BGPAdvertisement" && kind == "Community":
				s = "{communities: [known]}"
			}
			fmt.Fprintf(&b, "kind: %s\nmetadata: {name: %s}\nspec: %s\n---\n", k, nameOf(k), s)
		}
		return fromMetalLB.text(t, b.String(), migrate.Options{})
	}
	start := map[string]string{
		"IPAddressPool": "addresses: [10.1.0.0/24, \"fd00::/64\"]", "BGPPeer": "myASN: 1, peerASN: 2, peerAddress: 10.0.0.1", "AddressPool": "addresses: [10.1.0.0/24], protocol: bgp",
	}
	for _, row := range metallb.Table() {
		if row.In == "Service" {
			continue
		}
		path := strings.Split(row.Names[0], ".")
		value, ok := values[path[len(path)-1]]
		switch {
		case path[0] == "passwordSecret":
			path, value = path[:1], values["passwordSecret"]
		case row.In == "Community":
			value = `[{name: known, value: "1:2"}]`
		case !ok && row.Becomes != "":
			t.Fatalf("no value for %s in this test", row.Names[0])
		case !ok:
			value = "true"
		}
		for i := len(path) - 1; i > 0; i-- {
			value = fmt.Sprintf("{%s: %s}", path[i], value)
		}
		before := base(row.In, "{"+start[row.In]+"}")
		after := base(row.In, fmt.Sprintf("{%s, %s: %s}", start[row.In], path[0], value))
		if start[row.In] == "" {
			after = base(row.In, fmt.Sprintf("{%s: %s}", path[0], value))
		}
		if len(row.Idle) < 2 { // no value of the others is noted
			checkEffect(t, row, row.In+"/"+nameOf(row.In)+" "+row.Names[0], before, after)
		}
	}
}
