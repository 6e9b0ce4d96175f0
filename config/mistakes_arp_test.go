package config_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/election/electorate"
)

// flat is a valid file of a node on a flat layer 2.
const flat = `apiVersion: herald.dev/v1alpha1
kind: Speaker
nodeName: m1
vips:
- name: web
  addresses: [10.0.1.100]
  announce: arp
  checks: [apiserver]
checks:
- name: apiserver
  http: {url: "https://127.0.0.1:6443/readyz"}
election:
  members: {m1: "10.0.1.1:7946", m2: "10.0.1.2:7946", m3: "10.0.1.3:7946"}
  keyFile: /etc/herald/gossip.key
`

func TestFlatDefaults(t *testing.T) {
	c := mustParse(t, flat)
	if c.BGP != nil || c.VIPs[0].Interface != "" || c.VIPs[0].Priority != 100 || c.VIPs[0].OnConflict != config.Defend {
		t.Errorf("got %+v", c.VIPs[0])
	}
	e := c.Election
	if e.Bind.String() != "10.0.1.1:7946" || len(e.Members) != 3 || e.Lease.String() != "600ms" || e.Quorum != electorate.Majority || e.Insecure {
		t.Errorf("got %+v", e)
	}
	if c.ARP.Refresh.String() != "1m0s" || c.ARP.Fence != config.FenceAuto {
		t.Errorf("got %+v", c.ARP)
	}
	written := c.YAML()
	again := mustParse(t, string(written))
	if !maps.Equal(c.Election.Members, again.Election.Members) {
		t.Errorf("members after writing are %v, want %v", again.Election.Members, c.Election.Members)
	}
}

// named is the list of members in flat.
const named = `members: {m1: "10.0.1.1:7946", m2: "10.0.1.2:7946", m3: "10.0.1.3:7946"}`

func TestMembersThatComeAndGo(t *testing.T) {
	for text, forget := range map[string]time.Duration{
		`join: ["10.0.1.2:7946"]`:                                          4 * time.Hour,
		"bind: 10.0.1.1:7946\n  bootstrap: true\n  forget: 30m":            30 * time.Minute,
		`join: ["10.0.1.1:7946", "10.0.1.2:7946"]` + "\n  bootstrap: true": 4 * time.Hour,
	} {
		c := mustParse(t, strings.Replace(flat, named, text, 1))
		again := mustParse(t, string(c.YAML())).Election
		if e := c.Election; *e.Forget != forget || *again.Forget != forget || !slices.Equal(e.Join, again.Join) || e.Bootstrap != again.Bootstrap {
			t.Errorf("%s: %+v, and written and read again %+v", text, e, again)
		}
	}
}

// manyChecks are more checks than members can advertise.
func manyChecks(count int) (file string) {
	for i := range count {
		file += fmt.Sprintf("- {name: c%d, file: {path: /c}}\n", i)
	}
	return file
}

func TestFlatMistakes(t *testing.T) {
	var tooLong []string
	for i := range 9 {
		tooLong = append(tooLong, fmt.Sprintf(`m%d%s: "10.0.1.%d:7946"`, i+1, strings.Repeat("x", 69), i+1))
	}
	long := "members: {" + strings.Replace(strings.Join(tooLong, ", "), tooLong[0], `m1: "10.0.1.1:7946"`, 1) + "}"
	checkMistakesIn(t, flat, []mistake{
		{named, "join: []", "13:3: election.members: list all nodes that vote, or use join or bootstrap"},
		{named, `join: ["224.0.0.1:7946", "10.0.1.100:7946"]`, "13:10: election.join[0]: want the address of a host, got 224.0.0.1\n13:28: election.join[1]: 10.0.1.100 is a VIP of this speaker, want a node's own address"},
		{named, long, "13:12: election.members: the members' names, addresses and identities take 786 bytes together, at most 781 fit: shorten the names"},
		{named, "bootstrap: true", "13:3: election.bind: missing: give the address and port at which others find this node"},
		{named, "bind: 10.0.1.1:7946\n  bootstrap: true\n  quorum: none", "15:11: election.quorum: join and bootstrap need a majority: remove this, or list the members"},
		{named, "bind: 10.0.1.1:7946\n  forget: 30s\n  bootstrap: true", "14:11: election.forget: want 1m to 720h, got 30s"},
		{named, named + "\n  forget: 1h", "14:11: election.forget: has no effect on listed members: remove it, or use join in place of members"},
		{named, named + "\n  bootstrap: true", "13:12: election.members: join and bootstrap exclude a list of members: keep one or the other"},
		{named + "\n  keyFile: /etc/herald/gossip.key", "join: [\"10.0.1.2:7946\"]\n  insecure: true", "14:13: election.insecure: join and bootstrap need a key: set keyFile, or list the members"},
		{"announce: arp", "announce: arp\n  interface: lo", "8:14: vips[0].interface: no other host is on lo: name the link of the VIP's network, or remove it"},
		{"announce: arp", "announce: arp\n  priority: 1001", "8:13: vips[0].priority: want 0 to 1000, got 1001"},
		{"announce: arp", "announce: arp\n  onConflict: fight", `8:15: vips[0].onConflict: want defend or yield, got "fight"`},
		{"announce: arp", "announce: arp\n  med: 1", "8:8: vips[0].med: has no effect with announce: arp: remove it"},
		{"announce: arp", "announce: arp\n  onFailure: demote", "8:14: vips[0].onFailure: has no effect with announce: arp: remove it"},
		{"announce: arp", "announce: kernel\n  onFailure: demote\n  whenAllFail: keep", "9:16: vips[0].whenAllFail: has no effect with onFailure: demote, which keeps the VIP after every failure: remove one of the two"},
		{
			"name: web\n", "name: " + strings.Repeat("x", 60) + "\n  whenAllFail: keep\n",
			"6:16: vips[0].whenAllFail: members can advertise only VIPs with names of at most 59 characters: give it a shorter name",
		},
		{
			"announce: arp\n  checks: [apiserver]\nchecks:\n", "announce: arp\n  whenAllFail: keep\n  checks: [apiserver]\nchecks:\n" + manyChecks(31),
			"5:1: vips: members advertise all checks and the VIPs with whenAllFail: keep: at most 32 with 834 bytes of names, got 33 with 131: use fewer or shorter names",
		},
		{"announce: arp", "announce: bgp", "7:13: vips[0].announce: bgp needs a bgp section: add one"},
		{"m1: \"10.0.1.1:7946\", ", "", "13:12: election.members: lacks this node, m1: add it with its address, or set bind if it should not vote"},
		{"10.0.1.2:7946", "10.0.1.1:7946", "13:38: election.members.m2: 10.0.1.1:7946 is the address of m1 already"},
		{"10.0.1.2:7946", "10.0.1.2", `13:38: election.members.m2: want an IP address with a port such as 10.0.1.1:7946, got the text "10.0.1.2"`},
		{"10.0.1.2:7946", "10.0.1.2:0", `13:38: election.members.m2: want an IP address with a port such as 10.0.1.1:7946, got the text "10.0.1.2:0"`},
		{"10.0.1.2:7946", "224.0.0.2:7946", "13:38: election.members.m2: want the address of a host, got 224.0.0.2"},
		{"10.0.1.2:7946", "10.0.1.100:7946", "13:38: election.members.m2: 10.0.1.100 is a VIP of this speaker, want the node's own address"},
		{", m2:", ", M2:", `13:34: election.members: want a name of lower-case letters and digits, with '-' and '.' between, got the text "M2"`},
		{", m2:", ", m1:", "13:34: election.members.m1: given already: remove one"},
		{"members: {", "bind: 0.0.0.0:7946\n  members: {", "13:9: election.bind: want an address of this host, got 0.0.0.0"},
		{"members: {", "bind: 10.0.1.100:7946\n  members: {", "13:9: election.bind: 10.0.1.100 is a VIP of this speaker, want an address of this node's own"},
		{"  keyFile: /etc/herald/gossip.key\n", "", "13:3: election.keyFile: missing: write one with herald keygen and give the same to all members"},
		{"/etc/herald/gossip.key", "gossip.key", `14:12: election.keyFile: want the absolute path of a file`},
		{"/etc/herald/gossip.key", "/etc/herald/gossip.key\n  insecure: true", "15:13: election.insecure: has no effect with keyFile, which encrypts all messages: remove one of the two"},
		{"/etc/herald/gossip.key", "/etc/herald/gossip.key\n  lease: 149ms\nrealtime: true", "15:10: election.lease: want 150ms to 10s, got 149ms"},
		{"/etc/herald/gossip.key", "/etc/herald/gossip.key\n  lease: 200ms", "15:10: election.lease: below 500ms a busy node may lose it: set realtime: true, or a longer lease"},
		{"/etc/herald/gossip.key", "/etc/herald/gossip.key\n  quorum: half", `15:11: election.quorum: want majority or none, got the text "half"`},
		{"/etc/herald/gossip.key", "/etc/herald/gossip.key\narp: {refresh: 0s}", "15:16: arp.refresh: want 1s to 1h, got 0s"},
		{"/etc/herald/gossip.key", "/etc/herald/gossip.key\narp: {fence: on}", `15:14: arp.fence: want auto, required or off, got "on"`},
	})
}
