package clab_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/herald-vip/herald/testenv/clab"
	"github.com/herald-vip/herald/testenv/must"
)

// environment is a set of variables to look up.
type environment map[string]string

func (e environment) lookup(name string) (string, bool) {
	v, ok := e[name]
	return v, ok
}

const everything = `# A comment with a $PRICE.
name: all
prefix: ""
mgmt: {network: docker0}
topology:
  defaults:
    kind: linux
    image: base:1
    env: {A: defaults, B: defaults}
    exec: [echo defaults, echo once]
    binds: ["common/x:/x:ro", "/host/y:/y"]
  kinds:
    linux:
      network-mode: none
      cap-add: [NET_ADMIN]
      env: {B: kind, C: 3}
      sysctls: {net.ipv4.ip_forward: 1}
      exec: [echo kind]
  groups:
    speakers:
      image: ${IMAGE:=herald:dev}
      cmd: run
      binds: ["group:/x"]
      exec: [echo group]
  nodes:
    m1:
      hostname: master1
      ports: ["80:80"]
      entrypoint: sleep
      cmd: infinity
      exec:
      - echo once
      - sh -c 'echo "$1 $HOME"' x
      binds: [mine:/x]
    m1-speaker:
      network-mode: container:m1
      group: speakers
      cmd: run --config /etc/herald.yaml
    sw|plain: {kind: bridge, network-mode: container:plain}
    plain:
  links:
  - endpoints: ["m1:eth1", "plain:eth1"]
  - {endpoints: ["m1:eth2", "sw|plain:p1"], mtu: 1400, labels: {a: b}}
`

func TestParse(t *testing.T) {
	got := must.Get[*clab.Topology](t)(clab.Parse("/lab/all.clab.yml", []byte(everything), environment{"HOME": "/root"}.lookup))
	sysctls := map[string]string{"net.ipv4.ip_forward": "1"}
	env := map[string]string{"A": "defaults", "B": "kind", "C": "3"}
	common := []clab.Bind{
		{Source: "/lab/common/x", Target: "/x", ReadOnly: true},
		{Source: "/host/y", Target: "/y"},
	}
	inherited := [][]string{{"echo", "defaults"}, {"echo", "once"}, {"echo", "kind"}}
	want := &clab.Topology{
		Name: "all",
		Nodes: []clab.Node{
			{
				Name: "m1", Kind: clab.Linux, Image: "base:1", Hostname: "master1",
				Entrypoint: []string{"sleep"}, Cmd: []string{"infinity"},
				Env: env, Sysctls: sysctls,
				Binds: []clab.Bind{{Source: "/host/y", Target: "/y"}, {Source: "/lab/mine", Target: "/x"}},
				Exec: [][]string{
					{"echo", "defaults"}, {"echo", "once"}, {"echo", "kind"},
					{"sh", "-c", `echo "$1 /root"`, "x"},
				},
			},
			{
				Name: "m1-speaker", Kind: clab.Linux, Image: "herald:dev", Hostname: "master1",
				Cmd: []string{"run", "--config", "/etc/herald.yaml"},
				Env: env, Sysctls: sysctls, Base: "m1",
				Binds: []clab.Bind{{Source: "/host/y", Target: "/y"}, {Source: "/lab/group", Target: "/x"}},
				Exec:  slices.Concat(inherited, [][]string{{"echo", "group"}}),
			},
			{Name: "sw", Kind: clab.Bridge},
			{
				Name: "plain", Kind: clab.Linux, Image: "base:1", Hostname: "plain",
				Env: env, Sysctls: sysctls, Binds: common, Exec: inherited,
			},
		},
		Links: []clab.Link{
			{A: clab.Endpoint{Node: "m1", Interface: "eth1"}, B: clab.Endpoint{Node: "plain", Interface: "eth1"}, MTU: 9500},
			{A: clab.Endpoint{Node: "m1", Interface: "eth2"}, B: clab.Endpoint{Node: "sw", Interface: "p1"}, MTU: 1400},
		},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n, ok := got.Node("sw"); !ok || n.Kind != clab.Bridge {
		t.Errorf("Node(sw) = %v, %v", n, ok)
	}
	if _, ok := got.Node("nobody"); ok {
		t.Error("Node(nobody) exists")
	}
}

// TestParseErrors checks that each error names file, line and column.
func TestParseErrors(t *testing.T) {
	// node returns a file with one more line in its node a, at line 4.
	node := func(line string) string {
		return "name: x\ntopology:\n  nodes:\n    a:\n      kind: linux\n      " + line + "\n"
	}
	links := func(line string) string {
		return node("hostname: a") + "    b: {kind: linux, network-mode: 'container:a'}\n    c: {kind: linux}\n  links:\n  " + line + "\n"
	}
	tests := []struct{ name, file, want string }{
		{"empty", "", "f.yml: the file is empty"},
		{"two documents", "name: x\n---\nname: y\n", "f.yml: the file has more than one YAML document"},
		{"not YAML", "name: [", "f.yml:1:7: "},
		{"no name", "topology: {}\n", `f.yml: name: "" is no name for a lab`},
		{"name with a slash", "name: a/b\n", `f.yml: name: "a/b" is no name for a lab`},
		{"unknown key of the file", "name: x\ntopologie: {}\n", `f.yml:2:1: unknown field "topologie"`},
		{"unknown key of the topology", "name: x\ntopology:\n  colours: {}\n", `f.yml:3:3: unknown field "colours"`},
		{"unknown group", node("group: g"), "f.yml:4:5: node a: there is no group \"g\""},
		{"unknown key of a node", node("user: root"), `f.yml:6:7: unknown field "user"`},
		{"unknown key of the defaults", "name: x\ntopology:\n  defaults:\n    stages: {}\n", `f.yml:4:5: unknown field "stages"`},
		{"unknown key of a kind", "name: x\ntopology:\n  kinds:\n    linux:\n      type: y\n", `f.yml:5:7: unknown field "type"`},
		{"unknown key of a link", links("- {endpoints: [], type: veth}"), `f.yml:10:21: unknown field "type"`},
		{"key twice", node("kind: linux"), `f.yml:6:7: mapping key "kind" already defined`},
		{"nodes as a list", "name: x\ntopology:\n  nodes: [a]\n", "f.yml:3:10: want a mapping of names"},
		{"wrong type", node("exec: {a: b}"), "f.yml:6:1"},
		{"template", "name: x\ntopology: {{ .t }}\n", "f.yml:2: templates ({{ }}) are not supported"},
		{"unclosed variable", "name: x\n#\nprefix: ${A:=b\n", "f.yml:3: ${A:=b is not supported; want ${A} or ${A:=text}"},
		{"operator", "name: x\nprefix: ${A:-b}\n", "f.yml:2: ${A:-b} is not supported; want ${A} or ${A:=text}"},
		{"variable in a variable", "name: x\nprefix: ${A:=$B}\n", "f.yml:2: ${A:=$B} is not supported"},
		{"no kind", "name: x\ntopology:\n  nodes:\n    a:\n", `f.yml:4:5: node a: kind "" is not supported; want linux or bridge`},
		{"another kind", "name: x\ntopology: {nodes: {a: {kind: srl}}}\n", `f.yml:2:20: node a: kind "srl" is not supported`},
		{"node name", "name: x\ntopology: {nodes: {a/b: {kind: linux}}}\n", `f.yml:2:20: "a/b" is no name for a node`},
		{"host network", node("network-mode: host"), `f.yml:4:5: node a: network-mode: "host": want none or container:NODE`},
		{"own network shared", node("network-mode: container:a"), `f.yml:4:5: node a: network-mode: "a" is not a node with a network of its own`},
		{"unknown base", node("network-mode: container:b"), `f.yml:4:5: node a: network-mode: "b" is not a node`},
		{"base of a base", node("network-mode: none") + "    b: {kind: linux, network-mode: 'container:a'}\n    c: {kind: linux, network-mode: 'container:b'}\n", `f.yml:8:5: node c: network-mode: "b" is not a node with a network of its own`},
		{"bridge without a network", node("hostname: a") + "    b: {kind: bridge, network-mode: none}\n", `f.yml:7:5: node b: network-mode: "none": a bridge on the host has none`},
		{"bridge of another node", node("hostname: a") + "    b|a: {kind: bridge, network-mode: 'container:c'}\n", `f.yml:7:5: node b: network-mode: "container:c": want container:a, as the name says`},
		{"bridge of no node", node("hostname: a") + "    b|c: {kind: bridge, network-mode: 'container:c'}\n", `f.yml:7:5: node b: network-mode: "c" is not a node with a network of its own`},
		{"two bridges of a name", node("hostname: a") + "    b|a: {kind: bridge, network-mode: 'container:a'}\n    b: {kind: bridge}\n", `f.yml:8:5: node b: there is another of that name`},
		{"quote in entrypoint", node(`entrypoint: a "b`), `f.yml:4:5: node a: entrypoint: "a \"b": the command has an unclosed "`},
		{"quote in cmd", node(`cmd: a 'b`), `f.yml:4:5: node a: cmd: "a 'b": the command has an unclosed '`},
		{"backslash in exec", node(`exec: ['a\']`), `f.yml:4:5: node a: exec: "a\\": the command ends in a backslash`},
		{"empty exec", node(`exec: [' # nothing']`), `f.yml:4:5: node a: exec: " # nothing": the command is empty`},
		{"magic in exec", node(`exec: [echo __clabNodeName__]`), "f.yml:4:5: node a: exec: \"echo __clabNodeName__\": the __clab...__ variables are not supported"},
		{"magic in binds", node(`binds: ['__clabDir__/x:/x']`), `f.yml:4:5: node a: binds: "__clabDir__/x:/x": the __clab...__ variables are not supported`},
		{"volume", node("binds: [/x]"), `f.yml:4:5: node a: binds: "/x": want SOURCE:TARGET`},
		{"relative target", node("binds: ['/x:y']"), `f.yml:4:5: node a: binds: "/x:y": want SOURCE:TARGET`},
		{"home", node("binds: ['~/x:/x']"), `f.yml:4:5: node a: binds: "~/x:/x": ~ is not supported`},
		{"one endpoint", links("- {endpoints: ['a:eth1']}"), "f.yml:10:5: a link has two endpoints, not 1"},
		{"endpoint without interface", links("- {endpoints: ['a', 'c:e']}"), `f.yml:10:5: endpoint "a": want node:interface`},
		{"long interface", links("- {endpoints: ['a:e234567890123456', 'c:e']}"), `f.yml:10:5: endpoint "a:e234567890123456": want node:interface`},
		{"loopback", links("- {endpoints: ['a:lo', 'c:e']}"), `f.yml:10:5: endpoint "a:lo": want node:interface`},
		{"unknown node", links("- {endpoints: ['a:e', 'host:e']}"), `f.yml:10:5: endpoint "host:e": there is no node host`},
		{"sidecar", links("- {endpoints: ['b:e', 'c:e']}"), `f.yml:10:5: endpoint "b:e": b has the network of a; link that node`},
		{"interface twice", links("- {endpoints: ['a:e', 'c:e']}\n  - {endpoints: ['c:f', 'a:e']}"), `f.yml:11:5: endpoint "a:e": the interface has another link already`},
		{"mtu", links("- {endpoints: ['a:e', 'c:e'], mtu: 67}"), "f.yml:10:5: mtu: 67 is not between 68 and 65535"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := clab.Parse("f.yml", []byte(tt.file), environment{}.lookup)
			if err == nil {
				t.Fatalf("no error for\n%s", tt.file)
			}
			if !strings.HasPrefix(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q,\nwant a single line starting with %q", err, tt.want)
			}
		})
	}
}

func TestVariables(t *testing.T) {
	env := environment{"A": "a", "EMPTY": ""}
	tests := []struct{ text, want string }{
		{"$A", "a"},
		{"${A}", "a"},
		{"x${A}y$A/", "xaya/"},
		{"$NONE ${NONE}", "$NONE ${NONE}"},
		{"$EMPTY ${EMPTY}", "$EMPTY ${EMPTY}"},
		{"${A:=b} ${NONE:=b} ${EMPTY:=b}", "a b b"},
		{"${NONE:=ghcr.io/x-y/z:1.2}", "ghcr.io/x-y/z:1.2"},
		{"$$A $$", "$A $"},
		{"$1 ${1} $ $", "$1 ${1} $ $"},
		{"${} ${-x}", "${} ${-x}"},
		{"$", "$"},
	}
	for _, tt := range tests {
		t.Run(tt.text, func(t *testing.T) {
			file := "name: x\ntopology: {nodes: {a: {kind: linux, image: '" + tt.text + "'}}}\n"
			got := must.Get[*clab.Topology](t)(clab.Parse("f.yml", []byte(file), env.lookup))
			if image := got.Nodes[0].Image; image != tt.want {
				t.Errorf("%q, want %q", image, tt.want)
			}
		})
	}
}

func TestWords(t *testing.T) {
	tests := []struct {
		command string
		want    []string
	}{
		{"", nil},
		{"  ", nil},
		{"a b\t c\n", []string{"a", "b", "c"}},
		{`a 'b "c' "d 'e"`, []string{"a", `b "c`, "d 'e"}},
		{`a"b"'c'd`, []string{"abcd"}},
		{`'' ""`, []string{"", ""}},
		{`a\ b "\"\x" '\'`, []string{"a b", `"x`, `\`}},
		{"a #b c", []string{"a"}},
		{"a#b", []string{"a#b"}},
		{"a # b\nc", []string{"a", "c"}},
	}
	for _, tt := range tests {
		t.Run(tt.command, func(t *testing.T) {
			quoted := strings.ReplaceAll(tt.command, "'", "''")
			quoted = strings.ReplaceAll(quoted, "\n", "\n\n") // YAML folds one newline into a blank
			file := "name: x\ntopology: {nodes: {a: {kind: linux, cmd: '" + quoted + "'}}}\n"
			got := must.Get[*clab.Topology](t)(clab.Parse("f.yml", []byte(file), environment{}.lookup))
			if diff := cmp.Diff(tt.want, got.Nodes[0].Cmd); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("CLAB_TEST_IMAGE", "from-environment")
	file := "name: x\ntopology: {nodes: {a: {kind: linux, image: $CLAB_TEST_IMAGE, binds: ['a:/b']}}}\n"
	must.Do(t, os.WriteFile(filepath.Join(dir, "x.clab.yml"), []byte(file), 0o644))
	t.Chdir(dir)
	got := must.Get[*clab.Topology](t)(clab.Load("x.clab.yml"))
	n := got.Nodes[0]
	if want := filepath.Join(dir, "a"); n.Image != "from-environment" || n.Binds[0].Source != want {
		t.Errorf("image %q, bind %q, want from-environment and %q", n.Image, n.Binds[0].Source, want)
	}
	if _, err := clab.Load("missing.clab.yml"); err == nil || !strings.Contains(err.Error(), "missing.clab.yml") {
		t.Errorf("error %v does not name the missing file", err)
	}
}

// FuzzParse checks that nothing panics and that the names of accepted files resolve.
func FuzzParse(f *testing.F) {
	f.Add([]byte(everything))
	f.Add([]byte("name: x\ntopology: {nodes: {a: {kind: linux, image: '${A:=$B}', cmd: 'x \"y\" #'}}}\n"))
	f.Add([]byte("name: &n x\ntopology: {nodes: {*n : {kind: bridge}, <<: *n}}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := clab.Parse("/f.yml", data, environment{"A": "a"}.lookup)
		if err != nil {
			if got != nil || !strings.HasPrefix(err.Error(), "/f.yml:") {
				t.Fatalf("topology %v with error %q", got, err)
			}
			return
		}
		for _, n := range got.Nodes {
			if base, ok := got.Node(n.Base); n.Base != "" && (!ok || base.Base != "") {
				t.Errorf("node %s: base %q does not resolve", n.Name, n.Base)
			}
			for _, b := range n.Binds {
				if !filepath.IsAbs(b.Source) || !filepath.IsAbs(b.Target) {
					t.Errorf("node %s: relative bind %v", n.Name, b)
				}
			}
		}
		for _, l := range got.Links {
			for _, e := range []clab.Endpoint{l.A, l.B} {
				if n, ok := got.Node(e.Node); !ok || n.Base != "" || e.Interface == "" {
					t.Errorf("endpoint %v does not resolve", e)
				}
			}
		}
	})
}

// Every topology of the project parses, including the ones of slow end-to-end tests.
func TestProject(t *testing.T) {
	for _, folder := range []string{"../topologies", "../services/topology", "../e2e/machines/testdata"} {
		files, err := filepath.Glob(filepath.Join(folder, "*.clab.yml"))
		if err != nil || len(files) == 0 {
			t.Errorf("%s has no topology: %v", folder, err)
		}
		for _, file := range files {
			data := must.Get[[]byte](t)(os.ReadFile(file))
			if _, err := clab.Parse(file, data, environment{}.lookup); err != nil {
				t.Error(err)
			}
		}
	}
}
