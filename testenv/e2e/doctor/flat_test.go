//go:build e2e

package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/herald-vip/herald/doctor"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/stub"
)

// examine runs `herald doctor` in a node, after the words of wrap, and returns its
// report. The exit code must agree with the report.
func examine(t *testing.T, n *lab.Node, file string, wrap ...string) doctor.Report {
	t.Helper()
	out, err := n.Run(site.Context(t), append(wrap, "herald", "doctor", "--config", file, "-o", "json")...)
	var r doctor.Report
	if json.Unmarshal([]byte(out), &r) != nil {
		t.Fatalf("no report: %q: %v", out, err)
	}
	if code := exitCode(err); code != min(r.Blockers, 1) {
		t.Errorf("with %d blockers the exit code is %d", r.Blockers, code)
	}
	return r
}

// exitCode returns a command's exit code; -1 if it was killed.
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

// symptom is an expected finding.
type symptom struct {
	severity doctor.Severity
	topic    string
	want     string // part of subject and seen
}

// in reports whether the report has the symptom.
func (s symptom) in(r doctor.Report) bool {
	for _, f := range r.Findings {
		if f.Severity == s.severity && f.Topic == s.topic && strings.Contains(f.Subject+": "+f.Seen, s.want) {
			return true
		}
	}
	return false
}

// examineUntil examines a node until all symptoms are present: a new process takes a while to
// start.
func examineUntil(t *testing.T, n *lab.Node, file string, wrap []string, want ...symptom) (r doctor.Report) {
	t.Helper()
	site.Eventually(t, site.Soon, func() error {
		r = examine(t, n, file, wrap...)
		for _, s := range want {
			if !s.in(r) {
				return fmt.Errorf("no %s about %s contains %q: %+v", s.severity, s.topic, s.want, r.Findings)
			}
		}
		return nil
	})
	return r
}

// shows fails the test unless the report has all the symptoms, and no other blockers.
func shows(t *testing.T, r doctor.Report, want ...symptom) {
	t.Helper()
	blockers := 0
	for _, s := range want {
		if !s.in(r) {
			t.Errorf("no %s about %s contains %q", s.severity, s.topic, s.want)
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
		site.Must(t, r.WriteText(&text))
		t.Log(text.String())
	}
}

// TestDoctorOnFlatNodes examines masters of a flat layer 2 before, while and after
// everything is in order.
func TestDoctorOnFlatNodes(t *testing.T) {
	t.Parallel()
	f := site.NewFlat(t)
	const file = "/etc/herald/herald.yaml"
	for _, m := range site.FlatMasters() {
		site.Must(t, os.Chmod(filepath.Join(f.Dir, m, "gossip.key"), 0o600))
	}
	site.Boot(t, f.Lab, "m1-apiserver")
	first := []symptom{
		{doctor.OK, "herald", "Herald does not run yet"},
		{doctor.OK, "vip", "control-plane 10.4.0.10: on eth1, and no other machine answers"},
		{doctor.OK, "vip", "control-plane fd00:4::10: on eth1, and no other machine answers"},
		{doctor.OK, "port", "gossip 10.4.0.1:7946/udp: free"},
		{doctor.OK, "node", "fence: the kernel supports all"},
		{doctor.OK, "check", "apiserver"},
		{doctor.Warning, "member", "m2 10.4.0.2:7946: the node answers, but nothing listens"},
	}
	shows(t, examineUntil(t, f.Node("m1-speaker"), file, nil, first...), first...)

	holder := f.Elect(t)
	other := f.Others(holder)[0]
	r := examine(t, f.Node(other+"-speaker"), file)
	shows(t, r,
		symptom{doctor.OK, "herald", "runs with this file"},
		symptom{doctor.OK, "vip", "control-plane 10.4.0.10: on eth1, held by " + holder},
		symptom{doctor.OK, "vip", "control-plane fd00:4::10: on eth1, held by " + holder},
		symptom{doctor.OK, "port", "gossip 10.4.0." + other[1:] + ":7946/udp: Herald's own"},
		symptom{doctor.OK, "node", "fence: on"},
		symptom{doctor.OK, "process", "capabilities: Herald, process"},
		symptom{doctor.OK, "member", holder + " 10.4.0." + holder[1:] + ":7946: its votes arrive"})
	for _, found := range r.Findings {
		if found.Severity == doctor.Warning && found.Subject != "clock source" { // the clock source is the machine's
			t.Errorf("a warning about a healthy node: %+v", found)
		}
	}
	shows(t, examine(t, f.Node(holder+"-speaker"), file), symptom{doctor.OK, "vip", "control-plane 10.4.0.10: on eth1, and no other machine answers"})

	// Herald ends on one node and runs on the others: their answers count.
	f.Planned(t, other, func() error {
		return f.Node(other + "-speaker").Daemons()[0].Stop(site.Context(t))
	})
	shows(t, examine(t, f.Node(other+"-speaker"), file),
		symptom{doctor.OK, "herald", "Herald does not run yet"},
		symptom{doctor.OK, "vip", "control-plane 10.4.0.10: on eth1, held by " + holder},
		symptom{doctor.OK, "member", holder + " 10.4.0." + holder[1:] + ":7946: accepts TCP; UDP is not refused"})
}

// ailing is a lab of flat.clab.yml that examines m1 with changed files.
type ailing struct {
	*lab.Lab
	m1       *lab.Node
	dir      string // of m1's files
	standard string // its file
}

func newAiling(t *testing.T) *ailing {
	t.Helper()
	dir := t.TempDir()
	site.Must(t, os.CopyFS(dir, os.DirFS("../../topologies/flat")))
	l := site.StartLab(t, "flat.clab.yml", map[string]string{"FLAT_DIR": dir})
	a := &ailing{Lab: l, m1: l.Node("m1-speaker"), dir: filepath.Join(dir, "m1")}
	site.Must(t, os.Chmod(filepath.Join(a.dir, "gossip.key"), 0o600))
	a.standard = site.ReadFile(t, filepath.Join(a.dir, "herald.yaml"))
	return a
}

// ailment is a way to break m1, with the expected symptoms.
type ailment struct {
	name  string
	spoil func(t *testing.T) // undone by its clean-up
	edit  func(string) string
	wrap  []string
	want  []symptom
}

// examine examines m1 with an ailment.
func (a *ailing) examine(t *testing.T, file string, broken ailment) {
	t.Helper()
	if broken.spoil != nil {
		broken.spoil(t)
	}
	if broken.edit != nil {
		file = broken.edit(file)
	}
	site.Must(t, os.WriteFile(filepath.Join(a.dir, "test.yaml"), []byte(file), 0o600))
	shows(t, examineUntil(t, a.m1, "/etc/herald/test.yaml", broken.wrap, broken.want...), broken.want...)
}

// TestDoctorFindsFaults breaks a master of a flat layer 2 in one way after another.
func TestDoctorFindsFaults(t *testing.T) {
	t.Parallel()
	l := newAiling(t)
	m1, c1 := l.m1, l.Node("c1")
	site.Serve(t, m1, ":6443", stub.APIServer("m1"))

	for _, test := range []ailment{
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
			spoil: func(t *testing.T) { site.Serve(t, m1, "10.4.0.1:7946", stub.APIServer("m1")) },
			want:  []symptom{{doctor.Blocker, "port", "gossip 10.4.0.1:7946/tcp: in use by a program that is not visible from here"}},
		},
		{
			name: "another Herald",
			spoil: func(t *testing.T) {
				// A child of the test keeps the last listener open for the moment before its exec.
				free := symptom{doctor.OK, "port", "gossip 10.4.0.1:7946/tcp: free"}
				shows(t, examineUntil(t, m1, "/etc/herald/herald.yaml", nil, free), free)
				site.Daemonise(t, m1, "herald", "run", "--config", "/etc/herald/herald.yaml")
				// While Herald starts, the doctor must not test whether ports are free: Herald
				// would find one taken, and end.
				site.Speaker{Node: m1}.Shows(t, func(admin.Status) error { return nil })
			},
			edit: func(s string) string { return s + "admin: {socket: /run/other.sock}\n" },
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
				site.Must(t, l.Part("lan", []string{"m1"}, []string{"m2", "m3"}))
				t.Cleanup(func() { site.Must(t, l.Part("lan")) })
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
				{doctor.Warning, "vip", "control-plane 10.4.0.10: on eth1; cannot probe for other machines that use it"},
			},
		},
		{
			name: "keepalived beside it",
			spoil: func(t *testing.T) {
				conf := filepath.Join(l.dir, "keepalived.conf")
				site.Must(t, os.WriteFile(conf, []byte("vrrp_instance v {\n interface eth1\n virtual_router_id 7\n priority 1\n virtual_ipaddress { 10.4.0.10/24 }\n}\n"), 0o600))
				site.Daemonise(t, m1, "keepalived", "--dont-fork", "--log-console", "--use-file=/etc/herald/keepalived.conf")
			},
			want: []symptom{{doctor.Blocker, "software", "runs beside Herald, for the VIP 10.4.0.10"}},
		},
		{
			name: "static pod of kube-vip",
			spoil: func(t *testing.T) {
				site.MustRun(t, m1, "sh", "-c", `mkdir -p /etc/kubernetes/manifests && printf 'spec:\n  containers:\n  - image: ghcr.io/kube-vip/kube-vip:v1.0.0\n    env: [{name: address, value: "10.4.0.10"}]\n' > /etc/kubernetes/manifests/kube-vip.yaml`)
				undo(t, m1, "rm", "-r", "/etc/kubernetes/manifests")
			},
			want: []symptom{{doctor.Blocker, "software", "/etc/kubernetes/manifests/kube-vip.yaml: is a static pod of ghcr.io/kube-vip/kube-vip:v1.0.0, for the VIP 10.4.0.10"}},
		},
	} {
		t.Run(test.name, func(t *testing.T) { l.examine(t, l.standard, test) })
	}
}

// address adds an address to a link of a node for the duration of the test.
func address(t *testing.T, n *lab.Node, prefix, link string) {
	t.Helper()
	site.MustRun(t, n, "ip", "address", "add", prefix, "dev", link)
	undo(t, n, "ip", "address", "del", prefix, "dev", link)
}

// undo runs a command in a node when the test is over.
func undo(t *testing.T, n *lab.Node, argv ...string) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), site.Soon)
		defer cancel()
		_, err := n.Run(ctx, argv...)
		site.Must(t, err)
	})
}

// mac returns the hardware address of a node's eth1.
func mac(t *testing.T, n *lab.Node) string {
	t.Helper()
	return strings.TrimSpace(site.MustRun(t, n, "cat", "/sys/class/net/eth1/address"))
}

// doctorBalancers are added to a master's file for TestDoctorOnBalancers.
const doctorBalancers = `
balancers:
- name: kubernetes
  listen: [{address: "127.0.0.1:9443"}]
  backends: {members: {port: 6443, checks: [apiserver]}}
- name: others
  listen: [{address: "[fd00:4::1]:9443"}]
  backends: {static: {addresses: ["[fd00:4::2]:6443"]}}
`

// TestDoctorOnBalancers examines a correct master with balancers, and then breaks
// their preconditions one by one.
func TestDoctorOnBalancers(t *testing.T) {
	t.Parallel()
	l := newAiling(t)
	m1 := l.m1
	site.Serve(t, l.Node("m2-speaker"), ":6443", stub.APIServer("m2"))
	usual := []symptom{
		{doctor.OK, "node", "balancing: the kernel supports all"},
		{doctor.OK, "balancer", "kubernetes m2 10.4.0.2:6443"},
		{doctor.OK, "balancer", "others [fd00:4::2]:6443"},
	}

	for _, test := range []ailment{
		{
			name: "well",
			want: []symptom{
				{doctor.OK, "balancer", "kubernetes m1 10.4.0.1:6443"},
				{doctor.Warning, "balancer", "kubernetes m3 10.4.0.3:6443: "},
				{doctor.OK, "configuration", "valid: 1 VIP, 1 check, 2 balancers"},
			},
		},
		{
			name: "HAProxy at the same place",
			spoil: func(t *testing.T) {
				conf := filepath.Join(l.dir, "haproxy.cfg")
				site.Must(t, os.WriteFile(conf, []byte("defaults\n mode tcp\n timeout connect 1s\n timeout client 1s\n timeout server 1s\nlisten a\n bind 127.0.0.1:9443\n server m1 10.4.0.1:6443\n"), 0o600))
				site.Daemonise(t, m1, "haproxy", "-db", "-f", "/etc/herald/haproxy.cfg")
			},
			want: []symptom{{doctor.Warning, "balancer", "kubernetes 127.0.0.1:9443: another server listens there: haproxy, process"}},
		},
		{
			name:  "a proxy's port taken",
			spoil: func(t *testing.T) { site.Serve(t, m1, "127.0.0.1:9443", stub.APIServer("m1")) },
			edit: func(s string) string {
				return strings.Replace(s, "  backends: {members", "  mode: proxy\n  backends: {members", 1)
			},
			want: []symptom{{doctor.Blocker, "port", "balancer 127.0.0.1:9443/tcp: in use by"}},
		},
		{
			name: "an address of a Service",
			spoil: func(t *testing.T) {
				site.MustRun(t, m1, "ip", "link", "add", "kube-ipvs0", "type", "veth", "peer", "name", "other")
				undo(t, m1, "ip", "link", "del", "kube-ipvs0")
				address(t, m1, "10.4.0.50/32", "kube-ipvs0")
			},
			edit: func(s string) string { return strings.Replace(s, "127.0.0.1:9443", "10.4.0.50:9443", 1) },
			want: []symptom{{doctor.Warning, "balancer", "kubernetes 10.4.0.50:9443: kube-proxy in IPVS mode has the address on kube-ipvs0"}},
		},
		{
			name: "no forwarding, in a container",
			spoil: func(t *testing.T) {
				site.MustRun(t, m1, "sysctl", "-w", "net.ipv6.conf.all.forwarding=0")
			},
			wrap: site.ReadOnlySettings(),
			want: []symptom{{doctor.Warning, "node", "net.ipv6.conf.all.forwarding: 0, and /proc/sys cannot be written"}},
		},
		{
			name: "no such name",
			edit: func(s string) string {
				return strings.Replace(s, `{static: {addresses: ["[fd00:4::2]:6443"]}}`, "{dns: {name: nowhere.invalid, port: 80}}", 1)
			},
			want: []symptom{{doctor.Warning, "balancer", "others: the name of its backends cannot be looked up"}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			site.Serve(t, m1, ":6443", stub.APIServer("m1"))
			if test.edit == nil {
				test.want = append(test.want, usual...)
			}
			l.examine(t, l.standard+doctorBalancers, test)
		})
	}

	// A server that listens only on 127.0.0.1 passes its check, but is unreachable for other nodes.
	t.Run("a server on 127.0.0.1 alone", func(t *testing.T) {
		site.Serve(t, m1, "127.0.0.1:6443", stub.APIServer("m1"))
		l.examine(t, l.standard+doctorBalancers, ailment{want: []symptom{
			{doctor.OK, "check", "apiserver"},
			{doctor.Warning, "balancer", "kubernetes m1 10.4.0.1:6443: "},
		}})
	})
}
