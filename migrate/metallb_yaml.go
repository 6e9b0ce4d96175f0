package migrate

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/herald-vip/herald/api/v1alpha1"
)

// manifests are the objects to apply, in one stream.
func (m *metalLB) manifests() []byte {
	w := &writer{draft: m.draft}
	w.remark("By herald migrate metallb. Look at the comments, fill in what is left open, then:",
		"kubectl apply -f FILE")
	w.object("v1", "ConfigMap", "herald", m.options.Namespace)
	w.block("data", func() {
		w.line("herald.yaml: |")
		w.depth++
		w.file()
		w.depth--
	})
	for i, p := range m.pools {
		w.line("---")
		w.object(v1alpha1.Group+"/"+v1alpha1.Version, "AddressPool", p.Name, "")
		path := fmt.Sprintf("pools[%d].spec", i)
		w.block("spec", func() { w.pool(path, &p.Spec) })
	}
	for i, p := range m.peers {
		w.line("---")
		w.object(v1alpha1.Group+"/"+v1alpha1.Version, "BGPPeer", p.Name, "")
		path := fmt.Sprintf("peers[%d].spec", i)
		w.block("spec", func() { w.bgpPeer(path, &p.Spec) })
	}
	return []byte(w.String())
}

func (w *writer) object(version, kind, name, namespace string) {
	w.field("", "apiVersion", version)
	w.field("", "kind", kind)
	w.block("metadata", func() {
		w.field("", "name", quoted(name))
		w.field("", "namespace", scalar(namespace))
	})
}

// quoted is s as YAML text, which there is to be though it be empty.
func quoted(s string) string {
	if s == "" {
		return `""`
	}
	return scalar(s)
}

func (w *writer) pool(path string, p *v1alpha1.AddressPoolSpec) {
	w.field(path, "addresses", list(p.Addresses, func(r v1alpha1.AddressRange) string { return string(r) }))
	if p.AutoAssign != nil {
		w.field(path, "autoAssign", strconv.FormatBool(*p.AutoAssign))
	}
	if p.Priority != 0 {
		w.field(path, "priority", strconv.Itoa(int(p.Priority)))
	}
	if p.AvoidBuggyIPs {
		w.field(path, "avoidBuggyIPs", "true")
	}
	w.selectors("serviceSelectors", p.ServiceSelectors)
	w.field(path, "namespaces", list(p.Namespaces, func(n v1alpha1.Namespace) string { return string(n) }))
	w.selectors("namespaceSelectors", p.NamespaceSelectors)
	if p.BGP != nil {
		w.poolBGP(path, p.BGP)
	}
	switch a := p.ARP; {
	case a == nil:
	case len(a.Interfaces)+len(a.NodeSelectors) == 0:
		w.line("arp: {}")
	default:
		w.block("arp", func() {
			w.field(path, "interfaces", list(a.Interfaces, func(l v1alpha1.Link) string { return string(l) }))
			w.selectors("nodeSelectors", a.NodeSelectors)
		})
	}
}

func (w *writer) poolBGP(path string, b *v1alpha1.PoolBGP) {
	if reflect.DeepEqual(*b, v1alpha1.PoolBGP{AggregationLength: 32, AggregationLengthV6: 128}) {
		w.line("bgp: {}")
		return
	}
	w.block("bgp", func() {
		if b.AggregationLength != 32 {
			w.field(path, "aggregationLength", strconv.Itoa(int(b.AggregationLength)))
		}
		if b.AggregationLengthV6 != 128 {
			w.field(path, "aggregationLengthV6", strconv.Itoa(int(b.AggregationLengthV6)))
		}
		w.field(path, "peers", list(b.Peers, strings.Clone))
		w.selectors("nodeSelectors", b.NodeSelectors)
		w.field(path, "communities", list(b.Communities, func(c v1alpha1.Community) string { return string(c) }))
		w.field(path, "largeCommunities", list(b.LargeCommunities, func(c v1alpha1.LargeCommunity) string { return string(c) }))
		if b.LocalPref != nil {
			w.field(path, "localPref", strconv.FormatInt(*b.LocalPref, 10))
		}
	})
}

func (w *writer) bgpPeer(path string, p *v1alpha1.BGPPeerSpec) {
	w.field(path, "address", scalar(p.Address))
	w.field(path, "interface", scalar(string(p.Interface)))
	w.field(path, "asn", number(uint32(p.ASN)))
	if p.LocalASN != nil {
		w.field(path, "localASN", number(uint32(*p.LocalASN)))
	}
	w.field(path, "port", number(uint16(p.Port)))
	w.field(path, "localAddress", scalar(p.LocalAddress))
	if s := p.PasswordSecretRef; s != nil {
		w.field(path, "passwordSecretRef", "{name: "+scalar(s.Name)+"}")
	}
	w.field(path, "holdTime", duration(p.HoldTime.Duration))
	w.field(path, "multihop", number(uint8(p.Multihop)))
	if b := p.BFD; b != nil {
		w.field(path, "bfd", fmt.Sprintf("{interval: %s, multiplier: %d}", b.Interval.Duration, b.Multiplier))
	}
	w.field(path, "families", list(p.Families, func(f v1alpha1.Family) string { return string(f) }))
	w.selectors("nodeSelectors", p.NodeSelectors)
}

// selectors writes a list of them, if there are any.
func (w *writer) selectors(key string, selectors []v1alpha1.LabelSelector) {
	if len(selectors) == 0 {
		return
	}
	w.section(key, func() {
		for _, s := range selectors {
			w.list("", func() {
				if len(s.MatchLabels) > 0 {
					w.block("matchLabels", func() {
						for _, name := range slices.Sorted(maps.Keys(s.MatchLabels)) {
							w.field("", quoted(name), quoted(s.MatchLabels[name]))
						}
					})
				}
				if len(s.MatchExpressions) > 0 {
					w.section("matchExpressions", func() {
						for _, r := range s.MatchExpressions {
							w.list("", func() {
								w.field("", "key", quoted(r.Key))
								w.field("", "operator", quoted(string(r.Operator)))
								w.field("", "values", list(r.Values, strings.Clone))
							})
						}
					})
				}
			})
		}
	})
}
