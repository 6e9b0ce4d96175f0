//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/herald-vip/herald/doctor"
	"github.com/herald-vip/herald/testenv/stub"
)

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

// TestDoctorOnBalancers examines a master with balancers as it should be, and breaks what they
// need in one way after another.
func TestDoctorOnBalancers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.CopyFS(dir, os.DirFS("../topologies/flat")))
	must(t, os.Chmod(filepath.Join(dir, "m1", "gossip.key"), 0o600))
	l := startLab(t, "flat.clab.yml", map[string]string{"FLAT_DIR": dir})
	m1, m2 := l.Node("m1-speaker"), l.Node("m2-speaker")
	standard, err := os.ReadFile(filepath.Join(dir, "m1", "herald.yaml"))
	must(t, err)
	serve(t, m2, ":6443", stub.APIServer("m2"))
	usual := []symptom{
		{doctor.OK, "node", "balancing: the kernel has all that it needs"},
		{doctor.OK, "balancer", "kubernetes m2 10.4.0.2:6443"},
		{doctor.OK, "balancer", "others [fd00:4::2]:6443"},
	}

	for _, test := range []struct {
		name  string
		spoil func(t *testing.T) // undone by its clean-up
		edit  func(string) string
		wrap  []string
		want  []symptom
	}{
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
				conf := filepath.Join(dir, "m1", "haproxy.cfg")
				must(t, os.WriteFile(conf, []byte("defaults\n mode tcp\n timeout connect 1s\n timeout client 1s\n timeout server 1s\nlisten a\n bind 127.0.0.1:9443\n server m1 10.4.0.1:6443\n"), 0o600))
				daemonise(t, m1, "haproxy", "-db", "-f", "/etc/herald/haproxy.cfg")
			},
			want: []symptom{{doctor.Warning, "balancer", "kubernetes 127.0.0.1:9443: a server listens there, too: haproxy, process"}},
		},
		{
			name:  "a proxy's port taken",
			spoil: func(t *testing.T) { serve(t, m1, "127.0.0.1:9443", stub.APIServer("m1")) },
			edit: func(s string) string {
				return strings.Replace(s, "  backends: {members", "  mode: proxy\n  backends: {members", 1)
			},
			want: []symptom{{doctor.Blocker, "port", "balancer 127.0.0.1:9443/tcp: in use by"}},
		},
		{
			name: "an address of a Service",
			spoil: func(t *testing.T) {
				_, err := run(t, m1, "ip", "link", "add", "kube-ipvs0", "type", "veth", "peer", "name", "other")
				must(t, err)
				undo(t, m1, "ip", "link", "del", "kube-ipvs0")
				address(t, m1, "10.4.0.50/32", "kube-ipvs0")
			},
			edit: func(s string) string { return strings.Replace(s, "127.0.0.1:9443", "10.4.0.50:9443", 1) },
			want: []symptom{{doctor.Warning, "balancer", "kubernetes 10.4.0.50:9443: kube-proxy in IPVS mode has the address on kube-ipvs0"}},
		},
		{
			name: "no forwarding, in a container",
			spoil: func(t *testing.T) {
				_, err := run(t, m1, "sysctl", "-w", "net.ipv6.conf.all.forwarding=0")
				must(t, err)
			},
			wrap: readOnlySettings(),
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
			serve(t, m1, ":6443", stub.APIServer("m1"))
			if test.spoil != nil {
				test.spoil(t)
			}
			edited := string(standard) + doctorBalancers
			if test.edit != nil {
				edited = test.edit(edited)
			} else {
				test.want = append(test.want, usual...)
			}
			must(t, os.WriteFile(filepath.Join(dir, "m1", "test.yaml"), []byte(edited), 0o600))
			shows(t, examineUntil(t, m1, "/etc/herald/test.yaml", test.wrap, test.want...), test.want...)
		})
	}

	// A server that listens on 127.0.0.1 alone is well for its check, and for nobody else.
	t.Run("a server on 127.0.0.1 alone", func(t *testing.T) {
		serve(t, m1, "127.0.0.1:6443", stub.APIServer("m1"))
		must(t, os.WriteFile(filepath.Join(dir, "m1", "test.yaml"), append(standard, doctorBalancers...), 0o600))
		want := []symptom{
			{doctor.OK, "check", "apiserver"},
			{doctor.Warning, "balancer", "kubernetes m1 10.4.0.1:6443: "},
		}
		shows(t, examineUntil(t, m1, "/etc/herald/test.yaml", nil, want...), want...)
	})
}
