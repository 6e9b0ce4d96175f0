package services

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/testenv/must"
)

// crdCase is an object with its expected mistakes, each a field and the sentence about
// it, in order; none for a valid object.
type crdCase struct {
	name string
	spec string
	want []string
	// notInFile excludes the case from files of nodes, which lack the field or have it in another
	// form.
	notInFile bool
}

func poolCases() []crdCase {
	const (
		syntax    = "want a CIDR such as 10.1.0.0/24, or a range of one family such as 10.2.0.10-10.2.0.50"
		lowest    = "want the CIDR in its canonical form: its lowest address, with small letters and without needless zeros"
		canonical = "want the addresses in their canonical form: with small letters and without needless zeros"
		unicast   = "want unicast addresses that others can reach"
		order     = "want the lower address of a range first"
		near      = "an IPv6 range lies within a /112: want CIDRs for more than that"
		overlap   = "spec.addresses: two of the addresses overlap: want each address once"
		tooLong4  = "spec.bgp.aggregationLength: routes of this length reach beyond the pool: want at least the length of each IPv4 CIDR, and 32 where there is a range"
		tooLong6  = "spec.bgp.aggregationLengthV6: routes of this length reach beyond the pool: want at least the length of each IPv6 CIDR, and 128 where there is a range"
		selector  = "In and NotIn need values, Exists and DoesNotExist have none"
	)
	first := func(sentence string) []string { return []string{"spec.addresses[0]: " + sentence} }
	return []crdCase{
		{name: "least", spec: `{addresses: [10.1.0.0/24]}`},
		{name: "everything", spec: `{addresses: [10.1.0.0/24, 10.3.0.0/28, "fd00::/120"], autoAssign: false, priority: 10, avoidBuggyIPs: true,
			serviceSelectors: [{matchLabels: {app: web}}, {matchExpressions: [{key: example.com/tier, operator: In, values: [front, back]}, {key: internal, operator: DoesNotExist}]}],
			namespaces: [a, b-2], namespaceSelectors: [{}],
			bgp: {communities: ["64512:100", no-export], largeCommunities: ["64512:1:2"], localPref: 100, med: 4294967295, prepend: 10, aggregationLength: 28, aggregationLengthV6: 120, peers: [r1, 10.0.1.254], nodeSelectors: [{matchLabels: {rack: a}}],
				exceptions: [{serviceSelectors: [{matchLabels: {tier: gold}}], peers: [r2], nodeSelectors: [{}], communities: ["64512:7"], prepend: 2}]},
			arp: {interfaces: [eth0, bond0.100], nodeSelectors: [{}], preempt: true, preferences: [{weight: 100, nodeSelectors: [{}]}, {weight: 1, endpoints: true}]}}`},
		{name: "nothing", spec: `{}`, want: []string{"spec.addresses: Required value"}},
		{name: "no address", spec: `{addresses: []}`, want: []string{"spec.addresses: Invalid value: 0: spec.addresses in body should have at least 1 items"}},

		// The form of an address.
		{name: "range", spec: `{addresses: [10.2.0.10-10.2.0.50]}`},
		{name: "range of one", spec: `{addresses: [10.2.0.10-10.2.0.10, "fd00::5-fd00::5"]}`},
		{name: "range over octets", spec: `{addresses: [10.2.0.200-10.2.1.100, 9.255.255.255-10.0.0.0]}`},
		{name: "range of IPv6", spec: `{addresses: ["fd00::-fd00::9", "fd00::a-fd00::1f", "fd00::ff-fd00::ffff", "2001:db8:1:2:3:4:5:6-2001:db8:1:2:3:4:5:10"]}`},
		{name: "largest", spec: `{addresses: [10.0.0.0/8, "fd00::/8"]}`},
		{name: "smallest", spec: `{addresses: [10.0.0.1/32, "fd00::1/128"]}`},
		{name: "an address", spec: `{addresses: [10.1.0.1]}`, want: first(syntax)},
		{name: "a name", spec: `{addresses: [example.com]}`, want: first(syntax)},
		{name: "empty", spec: `{addresses: [""]}`, want: first(syntax)},
		{name: "half a range", spec: `{addresses: [10.1.0.1-]}`, want: first(syntax)},
		{name: "a range of CIDRs", spec: `{addresses: [10.1.0.0/24-10.2.0.0/24]}`, want: first(syntax)},
		{name: "three addresses", spec: `{addresses: [10.1.0.1-10.1.0.2-10.1.0.3]}`, want: first(syntax)},
		{name: "blanks", spec: `{addresses: [10.1.0.1 - 10.1.0.2]}`, want: first(syntax)},
		{name: "range of two families", spec: `{addresses: ["10.1.0.1-fd00::1"]}`, want: first(syntax)},
		{name: "too long a prefix", spec: `{addresses: [10.1.0.0/33]}`, want: first(syntax)},
		{name: "leading zero", spec: `{addresses: [10.1.0.010-10.1.0.20]}`, want: first(syntax)},
		{name: "mapped IPv4", spec: `{addresses: ["::ffff:10.1.0.0/120"]}`, want: first(syntax)},
		{name: "zone", spec: `{addresses: ["fd00::1%eth0-fd00::2%eth0"]}`, want: first(syntax)},
		{name: "second is bad", spec: `{addresses: [10.1.0.0/24, 10.2.0.0]}`, want: []string{"spec.addresses[1]: " + syntax}},
		{name: "host bits", spec: `{addresses: [10.1.0.5/24]}`, want: first(lowest)},
		{name: "capital CIDR", spec: `{addresses: ["FD00::/120"]}`, want: first(lowest)},
		{name: "capital range", spec: `{addresses: ["fd00::1-fd00::F"]}`, want: first(canonical)},
		{name: "needless zeros", spec: `{addresses: ["fd00:0::1-fd00::f"]}`, want: first(canonical)},
		{name: "huge", spec: `{addresses: [8.0.0.0/7, "fc00::/7"]}`, want: []string{
			"spec.addresses[0]: want a CIDR of length 8 or more", "spec.addresses[1]: want a CIDR of length 8 or more"}},
		{name: "multicast", spec: `{addresses: [224.0.1.0/24]}`, want: first(unicast)},
		{name: "loopback", spec: `{addresses: [127.0.0.1-127.0.0.9]}`, want: first(unicast)},
		{name: "link-local", spec: `{addresses: ["fe80::/64"]}`, want: first(unicast)},
		{name: "unspecified", spec: `{addresses: [0.0.0.0/8]}`, want: first(unicast)},
		{name: "broadcast", spec: `{addresses: [255.255.255.250-255.255.255.255]}`, want: first(unicast)},
		{name: "descending", spec: `{addresses: [10.2.0.50-10.2.0.10]}`, want: first(order)},
		{name: "descending, but not as text", spec: `{addresses: [10.2.0.100-10.2.0.99]}`, want: first(order)},
		{name: "descending in the first octet", spec: `{addresses: [200.0.0.1-100.0.0.2]}`, want: first(order)},
		{name: "descending IPv6", spec: `{addresses: ["fd00::10-fd00::f"]}`, want: first(order)},
		{name: "descending to nothing", spec: `{addresses: ["fd00::1-fd00::"]}`, want: first(order)},
		{name: "wide IPv6 range", spec: `{addresses: ["fd00::1-fd00::1:0"]}`, want: first(near)},

		// Each address once.
		{name: "side by side", spec: `{addresses: [10.1.0.0/25, 10.1.0.128/25, 10.2.0.0-10.2.0.9, 10.2.0.10-10.2.0.19, "fd00::/112", "fd00::1:0-fd00::1:f", "fd00::1:10/124"]}`},
		{name: "twice", spec: `{addresses: [10.1.0.0/24, 10.1.0.0/24]}`, want: []string{`spec.addresses[1]: Duplicate value: "10.1.0.0/24"`}},
		{name: "CIDR in a CIDR", spec: `{addresses: [10.1.0.128/25, 10.1.0.0/16]}`, want: []string{overlap}},
		{name: "range in a CIDR", spec: `{addresses: [10.1.0.5-10.1.0.7, 10.1.0.0/24]}`, want: []string{overlap}},
		{name: "CIDR in a range", spec: `{addresses: [10.1.0.0/24, 10.0.0.0-10.2.0.0]}`, want: []string{overlap}},
		{name: "range into a CIDR", spec: `{addresses: [10.0.255.250-10.1.0.0, 10.1.0.0/24]}`, want: []string{overlap}},
		{name: "range out of a CIDR", spec: `{addresses: [10.1.0.255-10.1.1.9, 10.1.0.0/24]}`, want: []string{overlap}},
		{name: "ranges", spec: `{addresses: [10.1.0.10-10.1.0.20, 10.1.0.20-10.1.0.30]}`, want: []string{overlap}},
		{name: "IPv6 CIDRs", spec: `{addresses: ["fd00::/64", "fd00::1:0/112"]}`, want: []string{overlap}},
		{name: "IPv6 ranges", spec: `{addresses: ["fd00::8-fd00::1f", "fd00::a-fd00::b"]}`, want: []string{overlap}},
		{name: "IPv6 range and CIDR", spec: `{addresses: ["fd00::f-fd00::1f", "fd00::10/124"]}`, want: []string{overlap}},

		// How they are announced.
		{name: "aggregates", spec: `{addresses: [10.1.0.0/24, "fd00::1-fd00::2"], bgp: {aggregationLength: 24}}`},
		{name: "aggregates of a huge pool", spec: `{addresses: [10.0.0.0/8, "fd00::/8"], bgp: {aggregationLength: 8, aggregationLengthV6: 8}}`},
		{name: "aggregate beyond a CIDR", spec: `{addresses: [10.1.0.0/16, 10.2.0.0/25], bgp: {aggregationLength: 24}}`, want: []string{tooLong4}},
		{name: "aggregate of a range", spec: `{addresses: [10.2.0.0-10.2.0.255], bgp: {aggregationLength: 24}}`, want: []string{tooLong4}},
		{name: "aggregate beyond an IPv6 CIDR", spec: `{addresses: ["fd00::/120"], bgp: {aggregationLengthV6: 64}}`, want: []string{tooLong6}},
		{name: "aggregate of an IPv6 range", spec: `{addresses: ["fd00::1-fd00::2"], bgp: {aggregationLengthV6: 120}}`, want: []string{tooLong6}},
		{name: "aggregate too short", spec: `{addresses: [10.0.0.0/8], bgp: {aggregationLength: 7}}`, want: []string{
			"spec.bgp.aggregationLength: Invalid value: 7: spec.bgp.aggregationLength in body should be greater than or equal to 8", tooLong4}},
		{name: "MED and local preference", spec: `{addresses: [10.0.0.0/8], bgp: {med: -1, localPref: 4294967296}}`, want: []string{
			"spec.bgp.localPref: Invalid value: 4294967296: spec.bgp.localPref in body should be less than or equal to 4294967295",
			"spec.bgp.med: Invalid value: -1: spec.bgp.med in body should be greater than or equal to 0"}},
		{name: "aggregate too long", spec: `{addresses: [10.0.0.0/8], bgp: {aggregationLength: 33, aggregationLengthV6: 129}}`, want: []string{
			"spec.bgp.aggregationLength: Invalid value: 33: spec.bgp.aggregationLength in body should be less than or equal to 32",
			"spec.bgp.aggregationLengthV6: Invalid value: 129: spec.bgp.aggregationLengthV6 in body should be less than or equal to 128"}},
		{name: "priority", spec: `{addresses: [10.1.0.0/24], priority: 1001}`, want: []string{
			"spec.priority: Invalid value: 1001: spec.priority in body should be less than or equal to 1000"}},
		{name: "link", spec: `{addresses: [10.1.0.0/24], arp: {interfaces: [eth/0, ".."]}}`, want: []string{
			"spec.arp.interfaces[0]: want the name of a link, such as eth0", "spec.arp.interfaces[1]: want the name of a link, such as eth0"}},
		{name: "preference without nodes", spec: `{addresses: [10.1.0.0/24], arp: {preferences: [{weight: 1}, {weight: 1, endpoints: false}]}}`, want: []string{
			"spec.arp.preferences[0]: want nodeSelectors, endpoints: true, or both: it is for all nodes otherwise, and so for none",
			"spec.arp.preferences[1]: want nodeSelectors, endpoints: true, or both: it is for all nodes otherwise, and so for none"}},
		{name: "weights", spec: `{addresses: [10.1.0.0/24], arp: {preferences: [{weight: 0, endpoints: true}, {weight: 101, endpoints: true}]}}`, want: []string{
			"spec.arp.preferences[0].weight: Invalid value: 0: spec.arp.preferences[0].weight in body should be greater than or equal to 1",
			"spec.arp.preferences[1].weight: Invalid value: 101: spec.arp.preferences[1].weight in body should be less than or equal to 100"}},
		{name: "exception without Services", spec: `{addresses: [10.1.0.0/24], bgp: {exceptions: [{peers: [r1]}, {serviceSelectors: []}]}}`, want: []string{
			"spec.bgp.exceptions[0].serviceSelectors: Required value",
			"spec.bgp.exceptions[1].serviceSelectors: Invalid value: 0: spec.bgp.exceptions[1].serviceSelectors in body should have at least 1 items"}},
		{name: "long link", spec: `{addresses: [10.1.0.0/24], arp: {interfaces: [abcdefghijklmnop]}}`, want: []string{
			"spec.arp.interfaces[0]: Too long: may not be more than 15 bytes"}},
		{name: "no link", spec: `{addresses: [10.1.0.0/24], arp: {interfaces: []}}`, want: []string{
			"spec.arp.interfaces: Invalid value: 0: spec.arp.interfaces in body should have at least 1 items"}},
		{name: "no peer", spec: `{addresses: [10.1.0.0/24], bgp: {peers: []}}`, want: []string{
			"spec.bgp.peers: Invalid value: 0: spec.bgp.peers in body should have at least 1 items"}},

		// The Services that they are for.
		{name: "namespace", spec: `{addresses: [10.1.0.0/24], namespaces: [Web]}`, want: []string{
			"spec.namespaces[0]: want the name of a namespace: lower-case letters and digits, with '-' between"}},
		{name: "operator", spec: `{addresses: [10.1.0.0/24], serviceSelectors: [{matchExpressions: [{key: a, operator: Is, values: [b]}]}]}`, want: []string{
			`spec.serviceSelectors[0].matchExpressions[0].operator: Unsupported value: "Is": supported values: "In", "NotIn", "Exists", "DoesNotExist"`}},
		{name: "In without values", spec: `{addresses: [10.1.0.0/24], namespaceSelectors: [{matchExpressions: [{key: a, operator: In}]}]}`, want: []string{
			"spec.namespaceSelectors[0].matchExpressions[0]: " + selector}},
		{name: "Exists with values", spec: `{addresses: [10.1.0.0/24], bgp: {nodeSelectors: [{matchExpressions: [{key: a, operator: Exists, values: [b]}]}]}}`, want: []string{
			"spec.bgp.nodeSelectors[0].matchExpressions[0]: " + selector}},
		{name: "label", spec: `{addresses: [10.1.0.0/24], arp: {nodeSelectors: [{matchExpressions: [{key: "a b", operator: Exists}]}]}}`, want: []string{
			"spec.arp.nodeSelectors[0].matchExpressions[0].key: want the name of a label, such as zone or example.com/zone"}},
	}
}

func peerCases() []crdCase {
	const (
		router    = "spec.address: want the unicast address of a router"
		either    = "spec: want one of address, interface and defaultGateway"
		number    = "spec.asn: want the number of an autonomous system, 1 to 4294967294 and not a reserved one, or external"
		oneASN    = "spec: want either asn or asnFrom, and one of them"
		oneValue  = "want either label or annotation, and one of them"
		reserved  = "the number is reserved: want that of an autonomous system"
		node      = "spec.localAddress: want an address of the node"
		hold      = "spec.holdTime: want whole seconds from 3s to 65535s"
		retry     = "spec.connectRetry: want whole seconds from 2s to 60s"
		interval  = "spec.bfd.interval: want 10ms to 10s, such as 50ms"
		community = "want a community such as 65000:100 or no-export"
		large     = "want a large community such as 64512:1:2"
		secret    = "spec.passwordSecretRef.name: want the name of a Secret: lower-case letters and digits, with '-' and '.' between"
	)
	out := func(field, value, bound string) string {
		return field + ": Invalid value: " + value + ": " + field + " in body should be " + bound
	}
	return []crdCase{
		{name: "least", spec: `{address: 10.0.1.254, asn: 64500}`},
		{name: "IPv6", spec: `{address: "fd00:1::254", asn: 64500}`},
		{name: "link-local", spec: `{address: "fe80::1%eth0", asn: 64500}`},
		{name: "loopback", spec: `{address: 127.0.0.2, asn: 64500}`},
		{name: "unnumbered", spec: `{interface: eth1, asn: 64500}`},
		{name: "everything", spec: `{address: 10.0.1.254, asn: 64500, port: 1179, localAddress: 10.0.1.1, holdTime: 90s, connectRetry: 1m, ttlSecurity: 254,
			bfd: {interval: 10ms, multiplier: 50, multihop: true}, families: [ipv4, ipv6], nextHop4: 10.0.1.1, nextHop6: "fd00:1::1",
			communities: ["64512:100", no-export, "0:0", "65535:65535"], largeCommunities: ["64512:1:4294967295"], med: 0, prepend: 10}`},
		{name: "only here", spec: `{address: 10.0.1.254, asn: 64500, passwordSecretRef: {name: bgp.r1, namespace: herald}, nodeSelectors: [{matchLabels: {rack: a}}]}`, notInFile: true},
		{name: "iBGP", spec: `{address: 10.0.1.254, asn: 64512, localASN: 64512, localPref: 4294967295}`},
		{name: "multihop", spec: `{address: 10.0.1.254, asn: 64500, multihop: 255, bfd: {interval: 10s, multiplier: 2, multihop: true}}`},

		{name: "default gateway", spec: `{defaultGateway: ipv4, asn: external, localAddress: 10.0.1.1, ttlSecurity: 1, bfd: {multihop: true}, nextHop4: 10.0.1.1}`},
		{name: "IPv6 default gateway", spec: `{defaultGateway: ipv6, asn: external, localAddress: "fd00:1::1", nextHop6: "fd00:1::1"}`},
		{name: "address and default gateway", spec: `{address: 10.0.1.254, defaultGateway: ipv4, asn: 64500}`, want: []string{either}},
		{name: "interface and default gateway", spec: `{interface: eth1, defaultGateway: ipv4, asn: 64500}`, want: []string{either}},
		{name: "default gateway of a family", spec: `{defaultGateway: ipv5, asn: 64500}`, want: []string{`spec.defaultGateway: Unsupported value: "ipv5": supported values: "ipv4", "ipv6"`}},
		{name: "local address of another family than the gateway", spec: `{defaultGateway: ipv6, asn: 64500, localAddress: 10.0.1.1}`, want: []string{"spec.localAddress: want an address of the same family as the gateway's"}},
		{name: "next hop of another family than the gateway", spec: `{defaultGateway: ipv6, asn: 64500, nextHop4: 10.0.1.1}`, want: []string{"spec.nextHop4: the session carries no ipv4 routes: add ipv4 to families or remove it"}},
		{name: "next hop of IPv6 with an IPv4 gateway", spec: `{defaultGateway: ipv4, asn: 64500, nextHop6: "fd00::1"}`, want: []string{"spec.nextHop6: the session carries no ipv6 routes: add ipv6 to families or remove it"}},
		{name: "no router", spec: `{asn: 64500}`, want: []string{either}},
		{name: "address and interface", spec: `{address: 10.0.1.254, interface: eth1, asn: 64500}`, want: []string{either}},
		{name: "a name", spec: `{address: example.com, asn: 64500}`, want: []string{router}},
		{name: "multicast", spec: `{address: 224.0.0.1, asn: 64500}`, want: []string{router}},
		{name: "unspecified", spec: `{address: "::", asn: 64500}`, want: []string{router}},
		{name: "broadcast", spec: `{address: 255.255.255.255, asn: 64500}`, want: []string{router}},
		{name: "empty zone", spec: `{address: "fe80::1%", asn: 64500}`, want: []string{router}},
		{name: "link-local without zone", spec: `{address: "fe80::1", asn: 64500}`, want: []string{"spec.address: a link-local address needs a zone: add the link's name, as in fe80::1%eth0"}},
		{name: "IPv4 with zone", spec: `{address: "169.254.0.1%eth0", asn: 64500}`, want: []string{"spec.address: an IPv4 address has no zone: remove it"}},
		{name: "link", spec: `{interface: "eth 1", asn: 64500}`, want: []string{"spec.interface: want the name of a link, such as eth0"}},

		{name: "any other ASN", spec: `{address: 10.0.1.254, asn: external}`},
		{name: "the node's ASNs", spec: `{address: 10.0.1.254, asnFrom: {label: example.com/tor-asn}, localASNFrom: {annotation: herald.dev/asn}}`, notInFile: true},
		{name: "no ASN", spec: `{address: 10.0.1.254}`, want: []string{oneASN}},
		{name: "ASN 0", spec: `{address: 10.0.1.254, asn: 0}`, want: []string{number}},
		{name: "ASN too high", spec: `{address: 10.0.1.254, asn: 4294967295}`, want: []string{number}},
		{name: "ASN 23456", spec: `{address: 10.0.1.254, asn: 23456}`, want: []string{number}},
		{name: "ASN 65535", spec: `{address: 10.0.1.254, asn: 65535}`, want: []string{number}},
		{name: "a word for the ASN", spec: `{address: 10.0.1.254, asn: internal}`, want: []string{number}},
		{name: "two ASNs", spec: `{address: 10.0.1.254, asn: 64500, asnFrom: {label: asn}}`, want: []string{oneASN}, notInFile: true},
		{name: "two own ASNs", spec: `{address: 10.0.1.254, asn: 64500, localASN: 64512, localASNFrom: {label: asn}}`, want: []string{
			"spec.localASNFrom: localASN and localASNFrom exclude each other: keep one"}, notInFile: true},
		{name: "label and annotation", spec: `{address: 10.0.1.254, asnFrom: {}, localASNFrom: {label: asn, annotation: herald.dev/asn}}`, want: []string{
			"spec.asnFrom: " + oneValue, "spec.localASNFrom: " + oneValue}, notInFile: true},
		{name: "an annotation of others", spec: `{address: 10.0.1.254, asnFrom: {annotation: example.com/asn}}`, want: []string{
			"spec.asnFrom.annotation: want an annotation whose name begins with herald.dev/"}, notInFile: true},
		{name: "own ASN", spec: `{address: 10.0.1.254, asn: 64500, localASN: 23456}`, want: []string{"spec.localASN: " + reserved}, notInFile: true},
		{name: "port 0", spec: `{address: 10.0.1.254, asn: 64500, port: 0}`, want: []string{out("spec.port", "0", "greater than or equal to 1")}},
		{name: "port", spec: `{address: 10.0.1.254, asn: 64500, port: 65536}`, want: []string{out("spec.port", "65536", "less than or equal to 65535")}},

		{name: "local address", spec: `{address: 10.0.1.254, asn: 64500, localAddress: 0.0.0.0}`, want: []string{node}},
		{name: "local address of the other family", spec: `{address: 10.0.1.254, asn: 64500, localAddress: "fd00::1"}`, want: []string{"spec.localAddress: want an address of the same family as the peer's"}},
		{name: "local address unnumbered", spec: `{interface: eth1, asn: 64500, localAddress: "fd00::1"}`, want: []string{"spec.localAddress: an unnumbered session uses the link-local address: remove it"}},

		{name: "shortest hold time", spec: `{address: 10.0.1.254, asn: 64500, holdTime: 3s}`},
		{name: "longest hold time", spec: `{address: 10.0.1.254, asn: 64500, holdTime: 18h12m15s}`},
		{name: "hold time 2s", spec: `{address: 10.0.1.254, asn: 64500, holdTime: 2s}`, want: []string{hold}},
		{name: "hold time 0s", spec: `{address: 10.0.1.254, asn: 64500, holdTime: 0s}`, want: []string{hold}},
		{name: "hold time 65536s", spec: `{address: 10.0.1.254, asn: 64500, holdTime: 65536s}`, want: []string{hold}},
		{name: "hold time 3.5s", spec: `{address: 10.0.1.254, asn: 64500, holdTime: 3.5s}`, want: []string{hold}},
		{name: "hold time without unit", spec: `{address: 10.0.1.254, asn: 64500, holdTime: "90"}`, want: []string{hold}},
		{name: "hold time forever", spec: `{address: 10.0.1.254, asn: 64500, holdTime: 999999h999999h9h}`, want: []string{hold}},

		{name: "shortest connect-retry time", spec: `{address: 10.0.1.254, asn: 64500, connectRetry: 2s}`},
		{name: "connect-retry time 1s", spec: `{address: 10.0.1.254, asn: 64500, connectRetry: 1s}`, want: []string{retry}},
		{name: "connect-retry time 61s", spec: `{address: 10.0.1.254, asn: 64500, connectRetry: 61s}`, want: []string{retry}},
		{name: "connect-retry time 2.5s", spec: `{address: 10.0.1.254, asn: 64500, connectRetry: 2.5s}`, want: []string{retry}},

		{name: "both limits of hops", spec: `{address: 10.0.1.254, asn: 64500, multihop: 2, ttlSecurity: 2}`, want: []string{"spec.ttlSecurity: multihop and ttlSecurity exclude each other: keep one"}},
		{name: "hops", spec: `{address: 10.0.1.254, asn: 64500, multihop: 256}`, want: []string{out("spec.multihop", "256", "less than or equal to 255")}},
		{name: "security", spec: `{address: 10.0.1.254, asn: 64500, ttlSecurity: 255}`, want: []string{out("spec.ttlSecurity", "255", "less than or equal to 254")}},
		{name: "unnumbered over hops", spec: `{interface: eth1, asn: 64500, multihop: 2}`, want: []string{"spec.multihop: an unnumbered peer is always on the link: remove it"}},
		{name: "unnumbered with security", spec: `{interface: eth1, asn: 64500, ttlSecurity: 1}`, want: []string{"spec.ttlSecurity: an unnumbered peer is always on the link: remove it"}},
		{name: "iBGP over hops", spec: `{address: 10.0.1.254, asn: 64512, localASN: 64512, multihop: 2}`, want: []string{"spec.multihop: an iBGP session is not limited to one hop: remove it"}},

		{name: "BFD", spec: `{address: 10.0.1.254, asn: 64500, bfd: {interval: 12.5ms, multiplier: 3}}`},
		{name: "BFD in seconds", spec: `{address: 10.0.1.254, asn: 64500, bfd: {interval: 1.5s}}`},
		{name: "BFD 9ms", spec: `{address: 10.0.1.254, asn: 64500, bfd: {interval: 9ms}}`, want: []string{interval}},
		{name: "BFD 11s", spec: `{address: 10.0.1.254, asn: 64500, bfd: {interval: 11s}}`, want: []string{interval}},
		{name: "BFD in parts of microseconds", spec: `{address: 10.0.1.254, asn: 64500, bfd: {interval: 50.0001ms}}`, want: []string{interval}},
		{name: "BFD multiplier 1", spec: `{address: 10.0.1.254, asn: 64500, bfd: {multiplier: 1}}`, want: []string{out("spec.bfd.multiplier", "1", "greater than or equal to 2")}},
		{name: "BFD multiplier 51", spec: `{address: 10.0.1.254, asn: 64500, bfd: {multiplier: 51}}`, want: []string{out("spec.bfd.multiplier", "51", "less than or equal to 50")}},
		{name: "BFD over hops of a link", spec: `{address: "fe80::1%eth0", asn: 64500, bfd: {multihop: true}}`, want: []string{"spec.bfd.multihop: a peer with a link-local address is always on the link: remove it"}},
		{name: "BFD over hops unnumbered", spec: `{interface: eth1, asn: 64500, bfd: {multihop: true}}`, want: []string{"spec.bfd.multihop: a peer with a link-local address is always on the link: remove it"}},
		{name: "BFD for one hop of several", spec: `{address: 10.0.1.254, asn: 64500, ttlSecurity: 2, bfd: {multihop: false}}`, want: []string{"spec.bfd.multihop: the peer may be several hops away: remove it"}},

		{name: "families", spec: `{address: 10.0.1.254, asn: 64500, families: [ipv5]}`, want: []string{`spec.families[0]: Unsupported value: "ipv5": supported values: "ipv4", "ipv6"`}},
		{name: "no family", spec: `{address: 10.0.1.254, asn: 64500, families: []}`, want: []string{"spec.families: Invalid value: 0: spec.families in body should have at least 1 items"}},
		{name: "family twice", spec: `{address: 10.0.1.254, asn: 64500, families: [ipv4, ipv4]}`, want: []string{`spec.families[1]: Duplicate value: "ipv4"`}},
		{name: "next hop of the other family", spec: `{address: 10.0.1.254, asn: 64500, families: [ipv4, ipv6], nextHop4: "fd00::1", nextHop6: 10.0.1.1}`, want: []string{
			"spec.nextHop4: want an IPv4 address of the node", "spec.nextHop6: want an IPv6 address of the node"}},
		{name: "next hop without IPv4", spec: `{address: "fd00:1::254", asn: 64500, nextHop4: 10.0.1.1}`, want: []string{"spec.nextHop4: the session carries no ipv4 routes: add ipv4 to families or remove it"}},
		{name: "next hop without IPv6", spec: `{address: 10.0.1.254, asn: 64500, nextHop6: "fd00::1"}`, want: []string{"spec.nextHop6: the session carries no ipv6 routes: add ipv6 to families or remove it"}},
		{name: "next hops unnumbered", spec: `{interface: eth1, asn: 64500, nextHop4: 10.0.1.1, nextHop6: "fd00::1"}`},

		{name: "community", spec: `{address: 10.0.1.254, asn: 64500, communities: ["65536:1"]}`, want: []string{"spec.communities[0]: " + community}},
		{name: "community's name", spec: `{address: 10.0.1.254, asn: 64500, communities: [no-exports]}`, want: []string{"spec.communities[0]: " + community}},
		{name: "large community as a community", spec: `{address: 10.0.1.254, asn: 64500, communities: ["64512:1:2"]}`, want: []string{"spec.communities[0]: " + community}},
		{name: "community twice", spec: `{address: 10.0.1.254, asn: 64500, communities: ["64512:1", "64512:1"]}`, want: []string{`spec.communities[1]: Duplicate value: "64512:1"`}},
		{name: "large community", spec: `{address: 10.0.1.254, asn: 64500, largeCommunities: ["64512:1", "64512:1:4294967296"]}`, want: []string{
			"spec.largeCommunities[0]: " + large, "spec.largeCommunities[1]: " + large}},
		{name: "reserved large community", spec: `{address: 10.0.1.254, asn: 64500, largeCommunities: ["4294967295:1:2"]}`, want: []string{"spec.largeCommunities[0]: the number 4294967295 is reserved: want another in front"}},
		{name: "local preference of eBGP", spec: `{address: 10.0.1.254, asn: 64500, localASN: 64512, localPref: 100}`, want: []string{"spec.localPref: only iBGP peers receive it: remove it"}},
		{name: "prepend", spec: `{address: 10.0.1.254, asn: 64500, prepend: 11}`, want: []string{out("spec.prepend", "11", "less than or equal to 10")}},
		{name: "much local preference", spec: `{address: 10.0.1.254, asn: 64512, localASN: 64512, localPref: 4294967296}`, want: []string{out("spec.localPref", "4294967296", "less than or equal to 4294967295")}},
		{name: "MED", spec: `{address: 10.0.1.254, asn: 64500, med: 4294967296}`, want: []string{out("spec.med", "4294967296", "less than or equal to 4294967295")}},

		{name: "Secret", spec: `{address: 10.0.1.254, asn: 64500, passwordSecretRef: {name: BGP}}`, want: []string{secret}, notInFile: true},
		{name: "no Secret", spec: `{address: 10.0.1.254, asn: 64500, passwordSecretRef: {}}`, want: []string{"spec.passwordSecretRef.name: Required value"}, notInFile: true},
	}
}

// The refusals of the names of tenants' objects.
const (
	badTenantName = "<nil>: want a name of 56 lower-case letters, digits and '-' at most: it becomes that of a namespace, after tenant-"
	badNodesName  = "<nil>: want the name nodes"
)

func tenantCases() []crdCase {
	const (
		canonical = "want a CIDR in its canonical form, such as 10.20.0.0/24 or fd00:20::/64"
		reachable = "want addresses that others can reach, and a length of 8 or more"
		ports     = "spec.nodes.ports: want the first and the last port, such as 30000-32767"
		domain    = "spec.domains[0]: want a domain of two labels or more, such as acme.example.com"
		path      = "spec.nodes.probe.path: want a path such as /healthz"
	)
	cidr := func(sentence string) []string { return []string{"spec.nodes.cidrs[0]: " + sentence} }
	withNodes := func(nodes string) string { return "{nodes: {cidrs: [10.20.0.0/24], " + nodes + "}}" }
	return []crdCase{
		{name: "least", spec: `{nodes: {cidrs: [10.20.0.0/24]}}`},
		{name: "everything", spec: `{nodes: {cidrs: [10.20.0.0/24, "fd00:20::/64"], ports: 31000-31999, probe: {protocol: TCP, port: 22, path: /}, maxPerService: 8}, endpoints: {cidrs: [203.0.113.0/24]}, domains: [acme.example.com], ingress: {className: traefik, annotations: [a.example.com/b]}, gateway: {namespace: gateways, name: shared}, certificates: {issuer: ca}, quota: {services: 0, routes: 0}}`},
		{name: "no nodes", spec: `{}`, want: []string{"spec.nodes: Required value"}},
		{name: "host bits", spec: `{nodes: {cidrs: [10.20.0.1/24]}}`, want: cidr(canonical)},
		{name: "an address", spec: `{nodes: {cidrs: [10.20.0.1]}}`, want: cidr(canonical)},
		{name: "everywhere", spec: `{nodes: {cidrs: [0.0.0.0/0]}}`, want: cidr(reachable)},
		{name: "loopback", spec: `{nodes: {cidrs: [127.0.0.0/8]}}`, want: cidr(reachable)},
		{name: "link-local", spec: `{nodes: {cidrs: [169.254.0.0/16]}}`, want: cidr(reachable)},
		{name: "endpoints on the loopback", spec: `{nodes: {cidrs: [10.20.0.0/24]}, endpoints: {cidrs: ["::1/128"]}}`, want: []string{"spec.endpoints.cidrs[0]: " + reachable}},
		{name: "one port", spec: withNodes("ports: \"30000\""), want: []string{ports}},
		{name: "ports the other way", spec: withNodes("ports: 32767-30000"), want: []string{ports}},
		{name: "too high a port", spec: withNodes("ports: 30000-70000"), want: []string{ports}},
		{name: "all of a top-level domain", spec: `{nodes: {cidrs: [10.20.0.0/24]}, domains: [com]}`, want: []string{domain}},
		{name: "a wildcard", spec: `{nodes: {cidrs: [10.20.0.0/24]}, domains: ["*.example.com"]}`, want: []string{domain}},
		{name: "a query", spec: withNodes("probe: {path: \"/healthz?x\"}"), want: []string{path}},
	}
}

// sameRouter is the refusal of a change of a peer's router.
const sameRouter = "spec: address, interface and defaultGateway cannot change: create a BGPPeer for the other router, then delete this one"

// sentences returns the messages of all rules of the CRDs.
func sentences(t *testing.T) []string {
	t.Helper()
	var found []string
	var walk func(node any)
	walk = func(node any) {
		switch node := node.(type) {
		case map[string]any:
			for name, child := range node {
				if sentence, ok := child.(string); ok && name == "message" && node["rule"] != nil {
					found = append(found, sentence)
				}
				walk(child)
			}
		case []any:
			for _, child := range node {
				walk(child)
			}
		}
	}
	files, err := filepath.Glob("../../../manifests/crds/*.yaml")
	if err != nil || len(files) != 7 {
		t.Fatalf("the CRDs are %q, want seven: %v", files, err)
	}
	for _, file := range files {
		data := must.Get[[]byte](t)(os.ReadFile(file))
		var definition any
		must.Do(t, yaml.Unmarshal(data, &definition))
		walk(definition)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// TestEveryRule checks that each rule of the CRDs refuses an object in the cases that
// TestCRDs submits to a kube-apiserver.
func TestEveryRule(t *testing.T) {
	wanted := []string{sameRouter, badTenantName, badNodesName}
	for _, test := range slices.Concat(poolCases(), peerCases(), tenantCases()) {
		wanted = append(wanted, test.want...)
	}
	for _, sentence := range sentences(t) {
		if !slices.ContainsFunc(wanted, func(mistake string) bool { return strings.HasSuffix(mistake, ": "+sentence) }) {
			t.Errorf("no case is refused with %q", sentence)
		}
	}
}

// TestPeersInAFile checks the peers of peerCases in a file with package config: it
// accepts the same ones as the kube-apiserver.
func TestPeersInAFile(t *testing.T) {
	const file = `apiVersion: herald.dev/v1alpha1
kind: Speaker
nodeName: m1
realtime: true
vips: [{name: v, addresses: [10.99.0.10], announce: bgp, checks: [h]}]
checks: [{name: h, tcp: {address: "127.0.0.1:1"}}]
bgp: {asn: 64512, peers: [{address: 10.0.1.253, asn: 64501}, %s]}
`
	for _, test := range peerCases() {
		if test.notInFile {
			continue
		}
		spec := strings.Replace(test.spec, ", localASN: 64512", "", 1)
		if _, err := config.Parse("herald.yaml", fmt.Appendf(nil, file, spec)); (err == nil) != (test.want == nil) {
			t.Errorf("%s, %s: %v", test.name, spec, err)
		}
	}
}
