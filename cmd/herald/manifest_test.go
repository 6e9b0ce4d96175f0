package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/herald-vip/herald/manifests"
	"github.com/herald-vip/herald/testenv/must"
)

// A configuration that is no good, or that no manifest can be made for, is wrong usage.
func TestManifestRefuses(t *testing.T) {
	const good = `apiVersion: herald.dev/v1alpha1
kind: Speaker
vips: [{name: a, addresses: [10.3.0.100], announce: arp, checks: [c]}]
checks: [{name: c, tcp: {address: "127.0.0.1:6443"}}]
election: {members: {m1: "10.3.0.1:7946"}, keyFile: /etc/herald/gossip.key}
`
	for name, test := range map[string]struct {
		config string
		node   string
		want   string
	}{
		"not valid":         {config: strings.Replace(good, "kind", "king", 1), node: "m1", want: `herald.yaml:2:1: king: unknown field`},
		"for another node":  {config: good, node: "m2", want: "election.members: lacks this node, m2: add it with its address"},
		"not representable": {config: good + "admin: {socket: /run/s}\n", node: "m1", want: "admin.socket is in /run, which other programs share"},
		"not there":         {want: "read configuration: open "},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "herald.yaml")
			if test.config != "" {
				must.Do(t, os.WriteFile(file, []byte(test.config), 0o600))
			}
			err := manifestCommand{Kind: manifests.StaticPod, Config: file, Node: test.node}.Run()
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("got %v, want %s", err, test.want)
			}
			if code := report(err); code != exitUsage {
				t.Errorf("exits with %d, want %d", code, exitUsage)
			}
		})
	}
}
