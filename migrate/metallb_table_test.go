package migrate

import (
	"fmt"
	"net/netip"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/herald-vip/herald/api/v1alpha1"
)

func members(list ...string) map[string]netip.AddrPort {
	out := map[string]netip.AddrPort{}
	for _, s := range list {
		name, addr, _ := strings.Cut(s, "=")
		out[name] = netip.MustParseAddrPort(addr)
	}
	return out
}

func metalLBManual() string {
	var b strings.Builder
	b.WriteString("| of | field | becomes | |\n|---|---|---|---|\n")
	for _, row := range metalLBTable() {
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s |\n", row.in, row.field, orNothing(row.becomes), row.text)
	}
	return b.String()
}

// What fields of MetalLB's become are fields of Herald's resources, or annotations.
func TestMetalLBFieldsExist(t *testing.T) {
	spec := map[string]reflect.Type{kindPeer: reflect.TypeFor[v1alpha1.BGPPeerSpec](), kindBFD: reflect.TypeFor[v1alpha1.BGPPeerSpec]()}
	found := 0
	for _, row := range metalLBTable() {
		if row.in == kindService {
			continue
		}
		of, ok := spec[row.in]
		if !ok {
			of = reflect.TypeFor[v1alpha1.AddressPoolSpec]()
		}
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row.becomes, -1) {
			path, _, _ := strings.Cut(m[1], ":")
			if !hasJSON(of, strings.Split(path, ".")) {
				t.Errorf("%s has no field %s", of, path)
			}
			found++
		}
	}
	if found < 30 {
		t.Errorf("only %d fields in the table", found)
	}
}

// hasJSON reports whether t has a field of that path, by the names of encoding/json.
func hasJSON(t reflect.Type, path []string) bool {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if len(path) == 0 {
		return true
	}
	if t.Kind() != reflect.Struct {
		return false
	}
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if options == "inline" && hasJSON(f.Type, path) || name == path[0] && hasJSON(f.Type, path[1:]) {
			return true
		}
	}
	return false
}

// Each field of MetalLB's does what its row says: it changes what comes out, or it
// is noted with the row's words.
func TestEachFieldOfMetalLB(t *testing.T) {
	values := map[string]string{ // unlike those of the base
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
	base := func(kind, spec string) *Result {
		t.Helper()
		specs := map[string]string{
			kindPool: "{addresses: [10.1.0.0/24, \"fd00::/64\"]}", kindPeer: "{myASN: 1, peerASN: 2, peerAddress: 10.0.0.1}", kindBGP: "{}", kindL2: "{}", kindBFD: "{}",
			kindOldPool: "{addresses: [10.1.0.0/24], protocol: bgp}", kindCommunity: "{}",
		}
		var b strings.Builder
		for _, k := range []string{kindPool, kindBGP, kindL2, kindPeer, kindBFD, kindOldPool, kindCommunity} {
			s := specs[k]
			switch {
			case k == kind:
				s = spec
			case k == kindPool && kind == kindOldPool || k == kindOldPool && kind != kindOldPool:
				continue
			case (k == kindBGP || k == kindL2) && kind == kindOldPool:
				continue
			case k == kindPeer && kind == kindBFD:
				s = "{myASN: 1, peerASN: 2, peerAddress: 10.0.0.1, bfdProfile: b}"
			case k == kindBGP && kind == kindCommunity:
				s = "{communities: [known]}"
			}
			name := map[string]string{kindBFD: "b", kindPeer: "x"}[k]
			if name == "" {
				name = "p"
			}
			fmt.Fprintf(&b, "kind: %s\nmetadata: {name: %s}\nspec: %s\n---\n", k, name, s)
		}
		return fromMetalLB(t, b.String(), Options{})
	}
	start := map[string]string{
		kindPool: "addresses: [10.1.0.0/24, \"fd00::/64\"]", kindPeer: "myASN: 1, peerASN: 2, peerAddress: 10.0.0.1", kindOldPool: "addresses: [10.1.0.0/24], protocol: bgp",
	}
	for _, row := range metalLBTable() {
		if row.in == kindService {
			continue
		}
		path := strings.Split(row.field, ".")
		value, ok := values[path[len(path)-1]]
		switch {
		case path[0] == "passwordSecret":
			path, value = path[:1], values["passwordSecret"]
		case row.in == kindCommunity:
			value = `[{name: known, value: "1:2"}]`
		case !ok && row.becomes != "":
			t.Fatalf("no value for %s in this test", row.field)
		case !ok:
			value = "true"
		}
		for i := len(path) - 1; i > 0; i-- {
			value = fmt.Sprintf("{%s: %s}", path[i], value)
		}
		before := base(row.in, "{"+start[row.in]+"}")
		after := base(row.in, fmt.Sprintf("{%s, %s: %s}", start[row.in], path[0], value))
		if start[row.in] == "" {
			after = base(row.in, fmt.Sprintf("{%s: %s}", path[0], value))
		}
		noted := strings.Contains(lines(after.Notes), row.text)
		switch changed := string(before.Config) != string(after.Config); {
		case row.becomes != "" && !changed:
			t.Errorf("%s of %s changes nothing:\n%s%s", row.field, row.in, after.Config, lines(after.Notes))
		case row.becomes == "" && changed:
			t.Errorf("%s of %s is said not to be carried over, and changes what comes out", row.field, row.in)
		case row.becomes == "" && len(row.idle) < 2 && !noted:
			t.Errorf("%s of %s is not noted:\n%s", row.field, row.in, lines(after.Notes))
		}
	}
}
