//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/doctor"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/stub"
)

// examine runs `herald doctor` in a node, behind what wraps the command, and returns its
// report. Its exit code is to agree with it.
func examine(t *testing.T, n *lab.Node, file string, wrap ...string) doctor.Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	out, err := n.Run(ctx, append(wrap, "herald", "doctor", "--config", file, "-o", "json")...)
	var r doctor.Report
	if json.Unmarshal([]byte(out), &r) != nil {
		t.Fatalf("no report but %q: %v", out, err)
	}
	if code := exitCode(err); code != min(r.Blockers, 1) {
		t.Errorf("with %d blockers the exit code is %d", r.Blockers, code)
	}
	return r
}

// exitCode is how a command ended; -1 if not by itself.
func exitCode(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return -1
}

// symptom is a finding to be expected.
type symptom struct {
	severity doctor.Severity
	topic    string
	want     string // in subject and seen
}

// has says whether the report has the symptom.
func (s symptom) in(r doctor.Report) bool {
	for _, f := range r.Findings {
		if f.Severity == s.severity && f.Topic == s.topic && strings.Contains(f.Subject+": "+f.Seen, s.want) {
			return true
		}
	}
	return false
}

// examineUntil examines a node until all symptoms are there, or it is late: a program that was
// just started takes a while to be there.
func examineUntil(t *testing.T, n *lab.Node, file string, wrap []string, want ...symptom) doctor.Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		r := examine(t, n, file, wrap...)
		if !slices.ContainsFunc(want, func(s symptom) bool { return !s.in(r) }) {
			return r
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return r // and shows says what is missing
		}
	}
}

// shows fails the test unless the report has all the symptoms, and no blockers but them.
func shows(t *testing.T, r doctor.Report, want ...symptom) {
	t.Helper()
	blockers := 0
	for _, s := range want {
		if !s.in(r) {
			t.Errorf("no %s of %s says %q", s.severity, s.topic, s.want)
		}
		if s.severity == doctor.Blocker {
			blockers++
		}
	}
	if r.Blockers != blockers {
		t.Errorf("%d blockers, want %d", r.Blockers, blockers)
	}
	if t.Failed() {
		var text strings.Builder
		must(t, r.WriteText(&text))
		t.Log(text.String())
	}
}

// TestDoctorOnFlatNodes examines masters of a flat layer 2 before, while and after
// everything is as it should be.
func TestDoctorOnFlatNodes(t *testing.T) {
	t.Parallel()
	f := newFlat(t)
	const file = "/etc/herald/herald.yaml"
	for _, m := range flatMasters() {
		must(t, os.Chmod(filepath.Join(f.dir, m, "gossip.key"), 0o600))
	}
	boot(t, f.Lab, "m1-apiserver")
	first := []symptom{
		{doctor.OK, "herald", "none runs yet"},
		{doctor.OK, "vip", "control-plane 10.4.0.10: on eth1, and nobody else answers"},
		{doctor.OK, "vip", "control-plane fd00:4::10: on eth1, and nobody else answers"},
		{doctor.OK, "port", "gossip 10.4.0.1:7946/udp: free"},
		{doctor.OK, "node", "fence: the kernel has all"},
		{doctor.OK, "check", "apiserver"},
		{doctor.Warning, "member", "m2 10.4.0.2:7946: the node is there, and nothing listens"},
	}
	shows(t, examineUntil(t, f.Node("m1-speaker"), file, nil, first...), first...)

	holder := f.elect(t)
	other := f.others(holder)[0]
	r := examine(t, f.Node(other+"-speaker"), file)
	shows(t, r,
		symptom{doctor.OK, "herald", "runs with this file"},
		symptom{doctor.OK, "vip", "control-plane 10.4.0.10: on eth1, held by " + holder},
		symptom{doctor.OK, "vip", "control-plane fd00:4::10: on eth1, held by " + holder},
		symptom{doctor.OK, "port", "gossip 10.4.0." + other[1:] + ":7946/udp: Herald's own"},
		symptom{doctor.OK, "node", "fence: on"},
		symptom{doctor.OK, "process", "capabilities: Herald, process"},
		symptom{doctor.OK, "member", holder + " 10.4.0." + holder[1:] + ":7946: its votes are heard"})
	for _, found := range r.Findings {
		if found.Severity == doctor.Warning && found.Subject != "clock source" { // which is the machine's
			t.Errorf("a warning about a node that is well: %+v", found)
		}
	}
	shows(t, examine(t, f.Node(holder+"-speaker"), file), symptom{doctor.OK, "vip", "control-plane 10.4.0.10: on eth1, and nobody else answers"})

	// Herald ends on one node, the others run: what they say there counts.
	f.planned(t, other, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		defer cancel()
		return f.Node(other + "-speaker").Daemons()[0].Stop(ctx)
	})
	shows(t, examine(t, f.Node(other+"-speaker"), file),
		symptom{doctor.OK, "herald", "none runs yet"},
		symptom{doctor.OK, "vip", "control-plane 10.4.0.10: on eth1, held by " + holder},
		symptom{doctor.OK, "member", holder + " 10.4.0." + holder[1:] + ":7946: accepts TCP; UDP is not refused"})
}

// TestDoctorFindsFaults breaks a master of a flat layer 2 in one way after another.
func TestDoctorFindsFaults(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.CopyFS(dir, os.DirFS("../topologies/flat")))
	must(t, os.Chmod(filepath.Join(dir, "m1", "gossip.key"), 0o600))
	l := startLab(t, "flat.clab.yml", map[string]string{"FLAT_DIR": dir})
	m1, c1 := l.Node("m1-speaker"), l.Node("c1")
	serve(t, m1, ":6443", stub.APIServer("m1"))
	standard, err := os.ReadFile(filepath.Join(dir, "m1", "herald.yaml"))
	must(t, err)

	for _, test := range []struct {
		name  string
		spoil func(t *testing.T) // undone by its clean-up
		edit  func(string) string
		wrap  []string
		want  []symptom
	}{
		{
			name: "VIP of another subnet",
			edit: func(s string) string { return strings.Replace(s, "10.4.0.10", "10.5.0.10", 1) },
			want: []symptom{{doctor.Blocker, "vip", "control-plane 10.5.0.10: no link has an address in its subnet"}},
		},
		{
			name:  "duplicate on the segment",
			spoil: func(t *testing.T) { address(t, c1, "10.4.0.10/32", "eth1"); address(t, c1, "fd00:4::10/128", "eth1") },
			want: []symptom{
				{doctor.Blocker, "vip", "control-plane 10.4.0.10: on eth1, in use by " + mac(t, c1)},
				{doctor.Blocker, "vip", "control-plane fd00:4::10: on eth1, in use by " + mac(t, c1)},
			},
		},
		{
			name:  "VIP on a member without Herald",
			spoil: func(t *testing.T) { address(t, l.Node("m2"), "10.4.0.10/32", "eth1") },
			want:  []symptom{{doctor.Blocker, "vip", "control-plane 10.4.0.10: on eth1, in use by m2 at " + mac(t, l.Node("m2")) + ", where Herald does not run"}},
		},
		{
			name:  "VIP bound by hand",
			spoil: func(t *testing.T) { address(t, m1, "10.4.0.10/32", "eth1") },
			want:  []symptom{{doctor.Blocker, "vip", "10.4.0.10/32 is on eth1 already, and Herald did not put it there"}},
		},
		{
			name:  "gossip's port taken",
			spoil: func(t *testing.T) { serve(t, m1, "10.4.0.1:7946", stub.APIServer("m1")) },
			want:  []symptom{{doctor.Blocker, "port", "gossip 10.4.0.1:7946/tcp: in use by a program that cannot be seen from here"}},
		},
		{
			name:  "another Herald",
			spoil: func(t *testing.T) { daemonise(t, m1, "herald", "run", "--config", "/etc/herald/herald.yaml") },
			edit:  func(s string) string { return s + "admin: {socket: /run/other.sock}\n" },
			want: []symptom{
				{doctor.Blocker, "herald", "runs, but does not answer on this file's admin socket"},
				{doctor.Blocker, "port", "gossip 10.4.0.1:7946/tcp: in use by herald, process"},
				{doctor.Blocker, "port", "gossip 10.4.0.1:7946/udp: in use by herald, process"},
				{doctor.Blocker, "port", "metrics 127.0.0.1:9474/tcp: in use by herald, process"},
			},
		},
		{
			name: "members cut off",
			spoil: func(t *testing.T) {
				must(t, l.Part("lan", []string{"m1"}, []string{"m2", "m3"}))
				t.Cleanup(func() { must(t, l.Part("lan")) })
			},
			want: []symptom{{doctor.Blocker, "member", "m2 10.4.0.2:7946"}, {doctor.Blocker, "member", "m3 10.4.0.3:7946"}},
		},
		{
			name: "no capabilities",
			wrap: []string{"setpriv", "--bounding-set=-net_admin,-net_raw,-sys_admin"},
			want: []symptom{
				{doctor.Blocker, "process", "CAP_NET_ADMIN"},
				{doctor.Blocker, "process", "CAP_NET_RAW"},
				{doctor.Warning, "node", "fence: no kernel fence"},
				{doctor.Warning, "vip", "control-plane 10.4.0.10: on eth1; whether somebody uses it already cannot be asked"},
			},
		},
		{
			name: "keepalived beside it",
			spoil: func(t *testing.T) {
				conf := filepath.Join(dir, "m1", "keepalived.conf")
				must(t, os.WriteFile(conf, []byte("vrrp_instance v {\n interface eth1\n virtual_router_id 7\n priority 1\n virtual_ipaddress { 10.4.0.10/24 }\n}\n"), 0o600))
				daemonise(t, m1, "keepalived", "--dont-fork", "--log-console", "--use-file=/etc/herald/keepalived.conf")
			},
			want: []symptom{{doctor.Blocker, "software", "runs beside Herald, for the VIP 10.4.0.10"}},
		},
		{
			name: "static pod of kube-vip",
			spoil: func(t *testing.T) {
				_, err := run(t, m1, "sh", "-c", `mkdir -p /etc/kubernetes/manifests && printf 'spec:\n  containers:\n  - image: ghcr.io/kube-vip/kube-vip:v1.0.0\n    env: [{name: address, value: "10.4.0.10"}]\n' > /etc/kubernetes/manifests/kube-vip.yaml`)
				must(t, err)
				undo(t, m1, "rm", "-r", "/etc/kubernetes/manifests")
			},
			want: []symptom{{doctor.Blocker, "software", "/etc/kubernetes/manifests/kube-vip.yaml: is a static pod of ghcr.io/kube-vip/kube-vip:v1.0.0, for the VIP 10.4.0.10"}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.spoil != nil {
				test.spoil(t)
			}
			edited := string(standard)
			if test.edit != nil {
				edited = test.edit(edited)
			}
			must(t, os.WriteFile(filepath.Join(dir, "m1", "test.yaml"), []byte(edited), 0o600))
			shows(t, examineUntil(t, m1, "/etc/herald/test.yaml", test.wrap, test.want...), test.want...)
		})
	}
}

// address puts an address on a link of a node for the time of the test.
func address(t *testing.T, n *lab.Node, prefix, link string) {
	t.Helper()
	_, err := run(t, n, "ip", "address", "add", prefix, "dev", link)
	must(t, err)
	undo(t, n, "ip", "address", "del", prefix, "dev", link)
}

// undo runs a command in a node when the test is over.
func undo(t *testing.T, n *lab.Node, argv ...string) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), soon)
		defer cancel()
		_, err := n.Run(ctx, argv...)
		must(t, err)
	})
}

// mac is the hardware address of a node's eth1.
func mac(t *testing.T, n *lab.Node) string {
	t.Helper()
	out, err := run(t, n, "cat", "/sys/class/net/eth1/address")
	must(t, err)
	return strings.TrimSpace(out)
}

// daemonise runs a program in a node for the time of the test.
func daemonise(t *testing.T, n *lab.Node, argv ...string) {
	t.Helper()
	p, err := n.Start(&exec.Cmd{Args: argv})
	must(t, err)
	t.Cleanup(func() { must(t, p.Kill()) })
}
