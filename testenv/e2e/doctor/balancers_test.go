//go:build e2e

package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/herald-vip/herald/doctor"
	"github.com/herald-vip/herald/testenv/e2e/site"
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
