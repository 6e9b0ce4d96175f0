package config_test

import (
	"strings"
	"testing"
)

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
