package config_test

import "testing"

func TestKernelMistakes(t *testing.T) {
	const kernel = `apiVersion: herald.dev/v1alpha1
kind: Speaker
nodeName: m1
vips:
- name: dns
  addresses: [192.0.2.53, "2001:db8::53"]
  announce: kernel
  checks: [dns]
- name: ntp
  addresses: [192.0.2.123]
  prefixes: [192.0.2.0/24]
  announce: kernel
  checks: [dns]
checks:
- name: dns
  tcp: {address: "127.0.0.1:53"}
`
	if c := mustParse(t, kernel); c.VIPs[0].Kernel.Table != 201 || c.VIPs[0].Kernel.Metric != 100 || c.BGP != nil {
		t.Errorf("defaults are %+v", c.VIPs[0])
	}
	checkMistakesIn(t, kernel, []mistake{
		{"announce: kernel\n  checks: [dns]\n- name", "announce: kernel\n  kernel: {table: 0, metric: 16777215}\n  checks: [dns]\n- name",
			"8:19: vips[0].kernel.table: want 1 to 65535, got 0\n8:30: vips[0].kernel.metric: want 1 to 16777214, got 16777215"},
		{"announce: kernel\n  checks: [dns]\n- name", "announce: kernel\n  kernel: {table: 255}\n  checks: [dns]\n- name",
			"8:19: vips[0].kernel.table: 255 holds the kernel's own routes to this host: use another table, such as 201"},
		{"announce: kernel\n  checks: [dns]\n- name", "announce: kernel\n  med: 5\n  priority: 5\n  interface: lo\n  checks: [dns]\n- name",
			"8:8: vips[0].med: has no effect with announce: kernel: remove it\n9:13: vips[0].priority: has no effect with announce: kernel: remove it\n10:14: vips[0].interface: has no effect with announce: kernel: remove it"},
		{"announce: kernel\n  checks: [dns]\n- name", "announce: kernle\n  checks: [dns]\n- name", `7:13: vips[0].announce: want bgp, kernel or arp, got "kernle"`},
		{"prefixes: [192.0.2.0/24]", "prefixes: [192.0.2.53/24]", "11:14: vips[1].prefixes[0]: 192.0.2.53/24 has bits beyond its length: did you mean 192.0.2.0/24?"},
		{"prefixes: [192.0.2.0/24]", `prefixes: ["::ffff:192.0.2.0/120"]`, `11:14: vips[1].prefixes[0]: want a prefix such as 10.99.0.0/24, got the text "::ffff:192.0.2.0/120"`},
		{"prefixes: [192.0.2.0/24]", "prefixes: [192.0.2.0]", `11:14: vips[1].prefixes[0]: want a prefix such as 10.99.0.0/24, got the text "192.0.2.0"`},
		{"prefixes: [192.0.2.0/24]", "prefixes: [192.0.2.0/24]\n  kernel: {table: 254}", "11:14: vips[1].prefixes[0]: in the main table it would attract this node's own packets to its other addresses: give kernel.table another number"},
		{"prefixes: [192.0.2.0/24]", "prefixes: [0.0.0.0/0]", "11:14: vips[1].prefixes[0]: a default route is too wide: give the prefix that contains the VIPs"},
		{"prefixes: [192.0.2.0/24]", "prefixes: [192.0.3.0/24]", "11:14: vips[1].prefixes[0]: contains no address of the VIP: add one in 192.0.3.0/24, or remove it"},
		{"prefixes: [192.0.2.0/24]", "prefixes: [192.0.2.0/24, 192.0.0.0/16]", "11:28: vips[1].prefixes[1]: overlaps another prefix: remove one"},
		{"  announce: kernel\n  checks: [dns]\n- name", "  prefixes: [192.0.2.0/24]\n  prefixWhile: all\n  announce: kernel\n  checks: [dns]\n- name",
			"7:14: vips[0].prefixes[0]: ntp announces it differently: give both the same announce, kernel, peers, prefixWhile and attributes\n" +
				"13:14: vips[1].prefixes[0]: dns announces it differently: give both the same announce, kernel, peers, prefixWhile and attributes"},
	})
	checkMistakesIn(t, flat, []mistake{
		{"announce: arp", "announce: arp\n  prefixes: [10.0.1.0/24]\n  kernel: {}", "8:13: vips[0].prefixes: has no effect with announce: arp: remove it\n9:11: vips[0].kernel: has no effect with announce: arp: remove it"},
	})
	checkMistakes(t, []mistake{
		{"announce: bgp", "announce: bgp\n  kernel: {}", "8:11: vips[0].kernel: has no effect with announce: bgp: remove it"},
	})
}
