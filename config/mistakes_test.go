package config_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/config"
)

// base is a valid file; tests add mistakes to it.
const base = `apiVersion: herald.dev/v1alpha1
kind: Speaker
nodeName: m1
vips:
- name: web
  addresses: [10.99.0.10]
  announce: bgp
  checks: [apiserver]
checks:
- name: apiserver
  http: {url: "https://127.0.0.1:6443/readyz"}
bgp:
  asn: 64512
  peers:
  - address: 10.0.1.254
    asn: 64500
`

// mistake replaces old by new; want has a line for each error, without the file's name.
type mistake struct{ old, new, want string }

// checkMistakes adds each mistake to the base.
func checkMistakes(t *testing.T, mistakes []mistake) {
	t.Helper()
	checkMistakesIn(t, base, mistakes)
}

// checkMistakesIn adds each mistake to a file, on a node named w1 by default.
func checkMistakesIn(t *testing.T, file string, mistakes []mistake) {
	t.Helper()
	for _, m := range mistakes {
		t.Run(m.new, func(t *testing.T) {
			if strings.Count(file, m.old) != 1 {
				t.Fatalf("%q occurs in the file %d times, want once", m.old, strings.Count(file, m.old))
			}
			_, err := config.Parse("herald.yaml", []byte(strings.Replace(file, m.old, m.new, 1)), config.Hostname("w1"))
			if err == nil {
				t.Fatalf("accepted, want %s", m.want)
			}
			want := "herald.yaml:" + strings.ReplaceAll(m.want, "\n", "\nherald.yaml:")
			if diff := cmp.Diff(want, err.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHeaderMistakes(t *testing.T) {
	checkMistakes(t, []mistake{
		{"apiVersion: herald.dev/v1alpha1\n", "", "1:1: apiVersion: missing: write apiVersion: herald.dev/v1alpha1"},
		{"herald.dev/v1alpha1", "herald.dev/v2", `1:13: apiVersion: want herald.dev/v1alpha1, got "herald.dev/v2"`},
		{"kind: Speaker\n", "", "1:1: kind: missing: write kind: Speaker"},
		{"Speaker", "speaker", `2:7: kind: want Speaker, got "speaker"`},
		{"nodeName: m1", "nodeName: M_1", `3:11: nodeName: want lower-case letters and digits, with '-' and '.' between, got "M_1"`},
		{"nodeName: m1", "nodeName: -m1", `3:11: nodeName: want lower-case letters and digits, with '-' and '.' between, got "-m1"`},
		{"nodeName: m1", "nodeName: 5", "3:11: nodeName: want text, got the number 5: put it in quotes"},
		{"nodeName: m1", "nodeName: true", "3:11: nodeName: want text, got true: put it in quotes"},
		{"nodeName: m1", `nodeName: "a\x07b"`, "3:11: nodeName: want one line without control characters"},
		{"nodeName: m1", "nodeName: |-\n  a\n  b", "3:11: nodeName: want one line without control characters"},
		{"nodeName: m1", "nodeName: [m1]", "3:11: nodeName: want text, got a list"},
		{"nodeName: m1", "nodeName:", "3:10: nodeName: has no value: give one or remove the line"},
		{"nodeName: m1", "nodeName: ~", "3:11: nodeName: has no value: give one or remove the line"},
		{"nodeName: m1", "NODENAME: m1", "3:1: NODENAME: unknown field, did you mean nodeName?"},
		{"nodeName: m1", "nodeName: m1\nelections: {}", "4:1: elections: unknown field, did you mean election?"},
		{"nodeName: m1", "nodeName: m1\n\"a b\": 1", `4:1: "a b": unknown field`},
		{"nodeName: m1", "nodeName: m1\nnodeName: m2", "4:1: nodeName: given already on line 3: remove one"},
		{"nodeName: m1", "nodeName: m1\n7: x", "4:1: want the name of a field, got the number 7"},
		{"nodeName: m1", "nodeName: m1\n<<: {a: 1}", "4:1: want the name of a field, got a merge key (<<), which is not supported"},
		{"nodeName: m1", "nodeName: m1\nadmin: /run/x.sock", `4:8: admin: want fields (name: value), got the text "/run/x.sock"`},
		{"nodeName: m1", "nodeName: m1\nadmin: {socket: herald.sock}", `4:17: admin.socket: want an absolute path of at most 107 bytes, got "herald.sock"`},
		{"nodeName: m1", "nodeName: m1\nadmin: {socket: /run/0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012}", `4:17: admin.socket: want an absolute path of at most 107 bytes, got "/run/01234567890123456789012345678901234567890123456789012345678…"`},
		{"nodeName: m1", "nodeName: m1\nadmin: {socket: /run/}", `4:17: admin.socket: want an absolute path of at most 107 bytes, got "/run/"`},
		{"nodeName: m1", "nodeName: m1\nmetrics: {listen: \"a b:80\"}", `4:19: metrics.listen: want host:port, or "" to turn it off, got "a b:80"`},
		{"nodeName: m1", "nodeName: m1\nmetrics: {listen: 9474}", "4:19: metrics.listen: want text, got the number 9474: put it in quotes"},
		{"nodeName: m1", "nodeName: m1\nmetrics: {listen: \"127.0.0.1\"}", `4:19: metrics.listen: want host:port, or "" to turn it off, got "127.0.0.1"`},
		{"nodeName: m1", "nodeName: m1\nmetrics: {listen: \":65536\"}", `4:19: metrics.listen: want host:port, or "" to turn it off, got ":65536"`},
	})
}

func TestYAMLMistakes(t *testing.T) {
	checkMistakes(t, []mistake{
		{"nodeName: m1", "nodeName: m1: m2", `3:11: not valid YAML: unexpected ":", check the indentation and quote a value that contains one`},
		{"nodeName: m1", "nodeName: [m1", "4:1: not valid YAML: ',' or ']' must be specified"},
		{"nodeName: m1", `nodeName: "m1`, "11:16: not valid YAML: unexpected value, check the indentation and the quotes"},
		{"nodeName: m1", "nodeName:\n\t- m1", "4:1: not valid YAML: found a tab, indent with spaces"},
		{"nodeName: m1", "  nodeName: m1", `2:7: not valid YAML: unexpected ":", check the indentation and quote a value that contains one`},
		{"nodeName: m1", "nodeName: m1\n---", "4:1: only one YAML document is allowed: remove everything from here on"},
		{"nodeName: m1", "nodeName: m1\n...", "5:1: only one YAML document is allowed: remove everything from here on"},
		{"nodeName: m1", "nodeName: !!str m1", `3:11: YAML tags are not supported: remove "!!str"`},
		{"nodeName: m1", "nodeName: *name", `3:11: nodeName: no anchor "name" is defined`},
		{"nodeName: m1", "nodeName: &a [*a]", "3:14: nodeName: want text, got a list"},
		{"nodeName: m1", "nodeName: @", "3:11: not valid YAML: '@' is a reserved character"},
		{"address: 10.0.1.254", "address: fd00::", `15:14: not valid YAML: unexpected ":", check the indentation and quote a value that contains one`},
		{"[10.99.0.10]", "&a [10.99.0.10]\n  x: &a 1", "7:3: vips[0].x: unknown field\n7:6: the anchor \"a\" is defined already on line 6"},
	})
}

func TestVIPsMistakes(t *testing.T) {
	checkMistakes(t, []mistake{
		{"- name: web\n  addresses: [10.99.0.10]\n  announce: bgp\n  checks: [apiserver]\n", "[]\n", "5:1: vips: at least one is needed, or balancers, or a services section"},
		{"vips:\n- name: web\n  addresses: [10.99.0.10]\n  announce: bgp\n  checks: [apiserver]\n", "", "1:1: vips: at least one is needed, or balancers, or a services section"},
		{"vips:\n- name: web\n  addresses: [10.99.0.10]\n  announce: bgp\n  checks: [apiserver]\n", "vips: {}\n", "4:7: vips: want a list, got fields (name: value)"},
		{"vips:\n- name: web\n  addresses: [10.99.0.10]\n  announce: bgp\n  checks: [apiserver]\n", "vips: [web]\n", `4:8: vips[0]: want fields (name: value), got the text "web"`},
		{"- name: web", "- interface: lo", "5:3: vips[0].name: missing: give it a name"},
		{"- name: web", "- name: Web", `5:9: vips[0].name: want at most 63 lower-case letters and digits, with '-' and '.' between, got "Web"`},
		{"- name: web", "- name: a/b", `5:9: vips[0].name: want at most 63 lower-case letters and digits, with '-' and '.' between, got "a/b"`},
		{"- name: web", "- name: 0123456789012345678901234567890123456789012345678901234567890abc", `5:9: vips[0].name: want at most 63 lower-case letters and digits, with '-' and '.' between, got "0123456789012345678901234567890123456789012345678901234567890abc"`},
		{"checks:\n- name", "- {name: web, addresses: [10.99.0.11], announce: bgp, checks: [apiserver]}\nchecks:\n- name", "9:10: vips[1].name: web is the name of vips[0] already"},
		{"checks:\n- name", "- {name: two, addresses: [10.99.0.10], announce: bgp, checks: [apiserver]}\nchecks:\n- name", "9:27: vips[1].addresses[0]: 10.99.0.10 is an address of vips[0] already"},
		{"checks:\n- name", "- {name: two, announce: bgp, checks: [apiserver]}\nchecks:\n- name", "9:3: vips[1].addresses: list at least one address"},
		{"[10.99.0.10]", "[]", "6:14: vips[0].addresses: list at least one address"},
		{"[10.99.0.10]", "10.99.0.10", `6:14: vips[0].addresses: want a list, got the text "10.99.0.10"`},
		{"[10.99.0.10]", "[10.99.0.10, 10.99.0.10]", "6:27: vips[0].addresses[1]: 10.99.0.10 is an address of vips[0] already"},
		{"[10.99.0.10]", "[10.99.0.10, 10.99.0.10/32]", "6:27: vips[0].addresses[1]: 10.99.0.10 is an address of vips[0] already"},
		{"[10.99.0.10]", "[10.99.0.10/24]", "6:15: vips[0].addresses[0]: want one address, got the network 10.99.0.10/24"},
		{"[10.99.0.10]", "[10.99.0]", `6:15: vips[0].addresses[0]: want an IP address, got the text "10.99.0"`},
		{"[10.99.0.10]", "[10.5]", "6:15: vips[0].addresses[0]: want an IP address, got the number 10.5"},
		{"[10.99.0.10]", `[""]`, `6:15: vips[0].addresses[0]: want an IP address, got the text ""`},
		{"[10.99.0.10]", "[0.0.0.0]", "6:15: vips[0].addresses[0]: want a unicast address that others can reach, got 0.0.0.0"},
		{"[10.99.0.10]", "[127.0.0.1]", "6:15: vips[0].addresses[0]: want a unicast address that others can reach, got 127.0.0.1"},
		{"[10.99.0.10]", "[224.0.0.5]", "6:15: vips[0].addresses[0]: want a unicast address that others can reach, got 224.0.0.5"},
		{"[10.99.0.10]", "[255.255.255.255]", "6:15: vips[0].addresses[0]: want a unicast address that others can reach, got 255.255.255.255"},
		{"[10.99.0.10]", "[169.254.1.1]", "6:15: vips[0].addresses[0]: want a unicast address that others can reach, got 169.254.1.1"},
		{"[10.99.0.10]", `["fe80::1%eth0"]`, "6:15: vips[0].addresses[0]: want a unicast address that others can reach, got fe80::1%eth0"},
		{"[10.99.0.10]", `["fd00::1%eth0"]`, "6:15: vips[0].addresses[0]: only a link-local address has a zone: remove %eth0"},
		{"[10.99.0.10]", `["::ffff:10.99.0.10"]`, "6:15: vips[0].addresses[0]: want a plain IPv4 address, got ::ffff:10.99.0.10: write 10.99.0.10"},
		{"[10.99.0.10]", `["fd00:99::10"]`, "6:15: vips[0].addresses[0]: no peer carries ipv6 routes: add ipv6 to the families of one"},
		{"announce: bgp", "announce: arp", "7:13: vips[0].announce: arp needs an election section: add one"},
		{"announce: bgp", "announce: ospf", `7:13: vips[0].announce: want bgp, kernel or arp, got "ospf"`},
		{"  announce: bgp\n", "", "5:3: vips[0].announce: missing: write announce: bgp or announce: kernel or announce: arp"},
		{"announce: bgp", "announce: bgp\n  interface: \"a b\"", `8:14: vips[0].interface: want the name of a link, at most 15 characters, got "a b"`},
		{"announce: bgp", "announce: bgp\n  priority: 50", "8:13: vips[0].priority: has no effect with announce: bgp: remove it"},
		{"announce: bgp", "announce: bgp\n  preempt: true", "8:12: vips[0].preempt: has no effect with announce: bgp: remove it"},
		{"announce: bgp", "announce: bgp\n  onConflict: yield", "8:15: vips[0].onConflict: has no effect with announce: bgp: remove it"},
		{"announce: bgp", "announce: bgp\n  interface: a-name-too-long1", `8:14: vips[0].interface: want the name of a link, at most 15 characters, got "a-name-too-long1"`},
		{"announce: bgp", "announce: bgp\n  interface: a/b", `8:14: vips[0].interface: want the name of a link, at most 15 characters, got "a/b"`},
		{"announce: bgp", "announce: bgp\n  linger: -1s", "8:11: vips[0].linger: want 0s to 5m, got -1s"},
		{"announce: bgp", "announce: bgp\n  linger: 5m1s", "8:11: vips[0].linger: want 0s to 5m, got 5m1s"},
		{"announce: bgp", "announce: bgp\n  linger: 5", "8:11: vips[0].linger: want a duration such as 200ms, got the number 5"},
		{"announce: bgp", "announce: bgp\n  linger: 5 s", `8:11: vips[0].linger: want a duration such as 200ms, got the text "5 s"`},
		{"announce: bgp", "announce: bgp\n  linger: [5s]", "8:11: vips[0].linger: want a duration such as 200ms, got a list"},
		{"announce: bgp", "announce: bgp\n  localPref: 10", "8:14: vips[0].localPref: only iBGP peers receive it: remove it"},
		{"announce: bgp", "announce: bgp\n  prepend: 11", "8:12: vips[0].prepend: want 0 to 10, got 11"},
		{"announce: bgp", "announce: bgp\n  peers: []", "8:10: vips[0].peers: list at least one peer, or remove it for all of them"},
		{"announce: bgp", "announce: bgp\n  peers: [10.0.1.254, 10.0.1.254]", `8:23: vips[0].peers[1]: "10.0.1.254" is listed twice`},
		{"announce: bgp", "announce: bgp\n  peers: [10.0.1.253]", `8:11: vips[0].peers[0]: no peer has the name "10.0.1.253", did you mean 10.0.1.254?`},
		{"announce: bgp", "announce: bgp\n  peers: [eth0]", `8:11: vips[0].peers[0]: no peer has the name "eth0"`},
		{"announce: bgp", "announce: bgp\n  holdDown: 61m", "8:13: vips[0].holdDown: want 0s to 1h, got 1h1m0s"},
		{"announce: bgp", "announce: bgp\n  holdDown: -1s", "8:13: vips[0].holdDown: want 0s to 1h, got -1s"},
		{"announce: bgp", "announce: bgp\n  onFailure: demoted", `8:14: vips[0].onFailure: want withdraw or demote, got "demoted"`},
		{"announce: bgp", "announce: bgp\n  whenAllFail: stay", `8:16: vips[0].whenAllFail: want withdraw or keep, got "stay"`},
		{"announce: bgp", "announce: bgp\n  whenAllFail: keep", "8:16: vips[0].whenAllFail: keep needs an election section to know the VIPs that other members serve: add one"},
		{"announce: bgp", "announce: bgp\n  check: [apiserver]", "8:3: vips[0].check: unknown field, did you mean checks?"},
		{"  checks: [apiserver]\n", "", "5:3: vips[0].checks: list at least one check: a VIP is announced only while its checks pass"},
		{"  checks: [apiserver]\n", "  check: [apiserver]\n", "8:3: vips[0].check: unknown field, did you mean checks?"},
		{"checks: [apiserver]", "checks: []", "8:11: vips[0].checks: list at least one check: a VIP is announced only while its checks pass"},
		{"checks: [apiserver]", "checks: apiserver", `8:11: vips[0].checks: want a list, got the text "apiserver"`},
		{"checks: [apiserver]", "checks: [apisevrer]", `8:12: vips[0].checks[0]: no check has the name "apisevrer", did you mean apiserver?`},
		{"checks: [apiserver]", "checks: [registry]", `8:12: vips[0].checks[0]: no check has the name "registry"`},
		{"checks: [apiserver]", "checks: [apiserver, apiserver]", `8:23: vips[0].checks[1]: "apiserver" is listed twice`},
	})
}

func TestChecksMistakes(t *testing.T) {
	checkMistakes(t, []mistake{
		{"- name: apiserver", "- rise: 2", "10:3: checks[0].name: missing: give it a name"},
		{"bgp:\n", "- {name: apiserver, tcp: {address: \"127.0.0.1:1\"}}\nbgp:\n", "12:10: checks[1].name: apiserver is the name of checks[0] already"},
		{"bgp:\n", "- {name: b, http: {url: \"http://127.0.0.1\"}, tcp: {address: \"127.0.0.1:1\"}}\nbgp:\n", "12:3: checks[1]: has http and tcp: make each a check of its own"},
		{"bgp:\n", "- {name: b, exec: {}}\nbgp:\n", "12:19: checks[1].exec.command: missing: list the absolute path of a program, and its arguments"},
		{"bgp:\n", "- {name: b, exec: {command: [check]}}\nbgp:\n", "12:30: checks[1].exec.command[0]: want the absolute path of a file"},
		{"bgp:\n", "- {name: b, exec: {command: [/c], user: root}}\nbgp:\n", `12:41: checks[1].exec.user: want the name or number of a user other than root, got "root"`},
		{"bgp:\n", "- {name: b, exec: {command: [/c], user: \"00\"}}\nbgp:\n", `12:41: checks[1].exec.user: want the name or number of a user other than root, got "00"`},
		{"bgp:\n", "- {name: b, exec: {command: [/c], environment: [A=1, 1=2, A=, =, B]}}\nbgp:\n", "12:54: checks[1].exec.environment[1]: want NAME=value, with a name of letters, digits and _\n12:59: checks[1].exec.environment[2]: A is given twice\n12:63: checks[1].exec.environment[3]: want NAME=value, with a name of letters, digits and _\n12:66: checks[1].exec.environment[4]: want NAME=value, with a name of letters, digits and _"},
		{"bgp:\n", "- {name: b, dns: {}}\nbgp:\n", "12:18: checks[1].dns.name: want the name to look up, such as example.org, got \"\"\n12:18: checks[1].dns.server: missing: give host:port"},
		{"bgp:\n", "- {name: b, dns: {server: \"127.0.0.1:53\", name: a..b}}\nbgp:\n", `12:49: checks[1].dns.name: want the name to look up, such as example.org, got "a..b"`},
		{"bgp:\n", "- {name: b, dns: {server: \"127.0.0.1:53\", name: \"a b\"}}\nbgp:\n", `12:49: checks[1].dns.name: want the name to look up, such as example.org, got "a b"`},
		{"bgp:\n", "- {name: b, dns: {server: \"127.0.0.1:53\", name: a, type: AXFR}}\nbgp:\n", `12:58: checks[1].dns.type: want A, AAAA, CNAME, MX, NS, PTR, SOA, SRV or TXT, got "AXFR"`},
		{"bgp:\n", "- {name: b, dns: {server: \"127.0.0.1:53\", name: a, answer: \"::1\"}}\nbgp:\n", `12:60: checks[1].dns.answer: want a record of type A as in a zone file, got "::1"`},
		{"bgp:\n", "- {name: b, grpc: {}}\nbgp:\n", "12:19: checks[1].grpc.address: missing: give host:port"},
		{"bgp:\n", "- {name: b, grpc: {address: \"127.0.0.1:1\", plaintext: true, caFile: /ca}}\nbgp:\n", "12:69: checks[1].grpc.caFile: plaintext has no certificates: remove one"},
		{"bgp:\n", "- {name: b, grpc: {address: \"127.0.0.1:1\", clientCertFile: /c}}\nbgp:\n", "12:19: checks[1].grpc.clientKeyFile: missing: clientCertFile needs its key"},
		{"bgp:\n", "- {name: b, icmp: {}}\nbgp:\n", "12:19: checks[1].icmp.address: missing: give the address of a host"},
		{"bgp:\n", "- {name: b, icmp: {address: gateway}}\nbgp:\n", `12:29: checks[1].icmp.address: want an IP address, got the text "gateway"`},
		{"bgp:\n", "- {name: b, icmp: {address: 224.0.0.1}}\nbgp:\n", "12:29: checks[1].icmp.address: want the address of a host, got 224.0.0.1"},
		{"bgp:\n", "- {name: b, icmp: {address: \"fe80::1\"}}\nbgp:\n", "12:29: checks[1].icmp.address: a link-local address needs a zone: write fe80::1%eth0 with the link's name"},
		{"bgp:\n", "- {name: b, icmp: {address: 10.0.0.1}, not: true}\nbgp:\n", "12:45: checks[1].not: has no effect with icmp, as the silence of a host proves nothing: remove it"},
		{"bgp:\n", "- {name: b, file: {}}\nbgp:\n", "12:19: checks[1].file.path: missing: give the absolute path of a file"},
		{"bgp:\n", "- {name: b, file: {path: flag}}\nbgp:\n", "12:26: checks[1].file.path: want the absolute path of a file"},
		{"bgp:\n", "- {name: b}\nbgp:\n", "12:3: checks[1]: give it one of http, tcp, exec, dns, grpc, icmp, file, link"},
		{"bgp:\n", "- {name: b, link: {}}\nbgp:\n", "12:19: checks[1].link.name: missing: give the name of a link"},
		{"bgp:\n", "- {name: b, link: {name: bond0/eth1}}\nbgp:\n", `12:26: checks[1].link.name: want the name of a link, at most 15 characters, got "bond0/eth1"`},
		{"bgp:\n", "- {name: b, tcp: {}}\nbgp:\n", "12:18: checks[1].tcp.address: missing: give host:port"},
		{"bgp:\n", "- {name: b, tcp: {address: localhost}}\nbgp:\n", `12:28: checks[1].tcp.address: want host:port such as 127.0.0.1:5001, got "localhost"`},
		{"bgp:\n", "- {name: b, tcp: {address: \":80\"}}\nbgp:\n", `12:28: checks[1].tcp.address: want host:port such as 127.0.0.1:5001, got ":80"`},
		{"bgp:\n", "- {name: b, tcp: {address: \"localhost:0\"}}\nbgp:\n", `12:28: checks[1].tcp.address: want host:port such as 127.0.0.1:5001, got "localhost:0"`},
		{"bgp:\n", "- {name: b, tcp: {address: \"localhost:http\"}}\nbgp:\n", `12:28: checks[1].tcp.address: want host:port such as 127.0.0.1:5001, got "localhost:http"`},
		{"bgp:\n", "  interval: 9ms\nbgp:\n", "12:13: checks[0].interval: want 10ms to 1m, got 9ms"},
		{"bgp:\n", "  interval: 61s\nbgp:\n", "12:13: checks[0].interval: want 10ms to 1m, got 1m1s"},
		{"bgp:\n", "  timeout: 0s\nbgp:\n", "12:12: checks[0].timeout: want 10ms to 1m, got 0s"},
		{"bgp:\n", "  rise: 0\nbgp:\n", "12:9: checks[0].rise: want 1 to 100, got 0"},
		{"bgp:\n", "  fall: 101\nbgp:\n", "12:9: checks[0].fall: want 1 to 100, got 101"},
		{"bgp:\n", "  fall: 2.5\nbgp:\n", "12:9: checks[0].fall: want a whole number, got the number 2.5"},
		{"bgp:\n", "  fall: \"2\"\nbgp:\n", `12:9: checks[0].fall: want a whole number, got the text "2"`},
		{"bgp:\n", "  fall: 010\nbgp:\n", "12:9: checks[0].fall: want a decimal number, got 010"},
		{"bgp:\n", "  fall: 1_0\nbgp:\n", "12:9: checks[0].fall: want a decimal number, got 1_0"},
		{"bgp:\n", "  fall: -3\nbgp:\n", "12:9: checks[0].fall: want 1 to 100, got -3"},
		{"bgp:\n", "  fall: 9223372036854775808\nbgp:\n", "12:9: checks[0].fall: the number 9223372036854775808 is out of range"},
		{`{url: "https://127.0.0.1:6443/readyz"}`, "{}", "11:9: checks[0].http.url: missing: give the URL to GET"},
		{`{url: "https://127.0.0.1:6443/readyz"}`, `{url: "ftp://127.0.0.1"}`, "11:15: checks[0].http.url: want a URL that begins with http:// or https://"},
		{`{url: "https://127.0.0.1:6443/readyz"}`, `{url: "127.0.0.1:6443"}`, "11:15: checks[0].http.url: want a URL such as https://127.0.0.1:6443/readyz"},
		{`{url: "https://127.0.0.1:6443/readyz"}`, `{url: "https://user:secret@127.0.0.1/"}`, "11:15: checks[0].http.url: a URL may hold no user or password: use tokenFile"},
		{`{url: "https://127.0.0.1:6443/readyz"}`, `{url: "https:///readyz"}`, "11:15: checks[0].http.url: has no host, want a URL such as https://127.0.0.1:6443/readyz"},
		{`{url: "https://127.0.0.1:6443/readyz"}`, `{url: "https://127.0.0.1:65536/"}`, "11:15: checks[0].http.url: want a port from 1 to 65535, got 65536"},
		{`{url: "https://127.0.0.1:6443/readyz"}`, `{url: "https://%zz/"}`, "11:15: checks[0].http.url: want a URL such as https://127.0.0.1:6443/readyz"},
		{`readyz"}`, `readyz", status: []}`, "11:56: checks[0].http.status: list at least one status"},
		{`readyz"}`, `readyz", status: 200}`, "11:56: checks[0].http.status: want a list, got the number 200"},
		{`readyz"}`, `readyz", status: [99, 600, 200, 200]}`, "11:57: checks[0].http.status[0]: want 200 to 599, got 99\n11:61: checks[0].http.status[1]: want 200 to 599, got 600\n11:71: checks[0].http.status[3]: 200 is listed twice"},
		{`readyz"}`, `readyz", clientCertFile: /c}`, "11:9: checks[0].http.clientKeyFile: missing: clientCertFile needs its key"},
		{`readyz"}`, `readyz", clientKeyFile: /k}`, "11:9: checks[0].http.clientCertFile: missing: clientKeyFile needs its certificate"},
		{`readyz"}`, `readyz", clientCertFile: c, clientKeyFile: k, caFile: ca, tokenFile: t}`, "11:64: checks[0].http.clientCertFile: want the absolute path of a file\n11:82: checks[0].http.clientKeyFile: want the absolute path of a file\n11:93: checks[0].http.caFile: want the absolute path of a file\n11:108: checks[0].http.tokenFile: want the absolute path of a file"},
		{`readyz"}`, `readyz", caFile: /ca, insecureSkipVerify: true}`, "11:56: checks[0].http.caFile: has no effect with insecureSkipVerify: remove one of the two"},
		{`readyz"}`, `readyz", insecureSkipVerify: yes}`, `11:68: checks[0].http.insecureSkipVerify: want true or false, got the text "yes"`},
		{`"https://127.0.0.1:6443/readyz"`, `"http://[::1]:80", caFile: /ca, serverName: x, insecureSkipVerify: true, clientCertFile: /c, clientKeyFile: /k`, `11:42: checks[0].http.caFile: an http url has no certificates: use https or remove it
11:59: checks[0].http.serverName: an http url has no certificates: use https or remove it
11:82: checks[0].http.insecureSkipVerify: an http url has no certificates: use https or remove it
11:104: checks[0].http.clientCertFile: an http url has no certificates: use https or remove it
11:123: checks[0].http.clientKeyFile: an http url has no certificates: use https or remove it`},
	})
}

// A section with an unknown name is one mistake: the section that it may be meant for is
// not reported as missing, and neither are consequences of that.
func TestMisspeltSections(t *testing.T) {
	checkMistakesIn(t, worker, []mistake{
		{"election:", "gossip:", "3:1: gossip: unknown field"},
		{"election:", "elections:", "3:1: elections: unknown field, did you mean election?"},
		{"balancers:", "proxies:", "6:1: proxies: unknown field"},
		{"balancers:", "loadBalancers:", "6:1: loadBalancers: unknown field, did you mean loadBalancer?"},
		{"balancers:", "loadBalancer:", "1:1: vips: at least one is needed, or balancers, or a services section\n4:12: election.members: lacks this node, w1: add it with its address, or set bind if it should not vote\n7:1: loadBalancer: want fields (name: value), got a list"},
		{"  backends:", "  servers:", "9:3: balancers[0].servers: unknown field"},
		{"    members:", "    masters:", "10:5: balancers[0].backends.masters: unknown field"},
		{"  members: {m1", "  voters: {m1", "4:3: election.voters: unknown field"},
		{"checks: [", "healthy: [", "10:27: balancers[0].backends.members.healthy: unknown field, want port or checks"},
	})
	checkMistakesIn(t, base, []mistake{
		{"vips:\n", "addresses:\n", "4:1: addresses: unknown field"},
		{"checks:\n", "probes:\n", "9:1: probes: unknown field"},
		{"bgp:\n", "routing:\n", "12:1: routing: unknown field"},
	})
}

// An unknown section may be meant for any missing section beside it; an unknown value only for the missing
// field with the most similar name. All other missing fields are reported.
func TestMissingBesideMisspelt(t *testing.T) {
	listen := worker[strings.Index(worker, "listen:"):strings.Index(worker, "\n  backends")]
	checkMistakesIn(t, worker, []mistake{
		{listen, "place: {}", "8:3: balancers[0].place: unknown field"},
		{"port: 6443", "p: 6443", "10:14: balancers[0].backends.members.port: want 1 to 65535, got 0\n10:15: balancers[0].backends.members.p: unknown field, want port or checks"},
		{"apiVersion: herald.dev/v1alpha1", "comment: hi", "1:1: apiVersion: missing: write apiVersion: herald.dev/v1alpha1\n1:1: comment: unknown field"},
		{"election:", "gossip: on\nelections:", "3:1: gossip: unknown field\n4:1: elections: unknown field, did you mean election?"},
		{"kind: Speaker", "metrics: [9474]", "1:1: kind: missing: write kind: Speaker\n2:10: metrics: want fields (name: value), got a list"},
	})
}

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
