package migrate_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/herald-vip/herald/migrate"
	"github.com/herald-vip/herald/migrate/kubevip"
)

// Each setting of kube-vip has the effect in its row: it changes the configuration, or a note has the row's
// text.
func TestEachSetting(t *testing.T) {
	values := map[string]string{ // values that differ from the base
		"address": "10.3.0.9", "vip_address": "10.3.0.8", "vip_interface": "eth9", "port": "7443",
		"kubernetes_addr": "https://127.0.0.1:6444", "control_plane_health_check_address": "https://127.0.0.1:6445/livez",
		"control_plane_health_check_ca_path": "/ca", "vip_nodename": "m7", "prometheus_server": ":9", "vip_arpRate": "2000",
		"bgp_as": "1", "bgp_routerid": "1.2.3.4", "bgp_peers": "10.0.0.9:65000", "bgp_peeraddress": "10.0.0.8", "bgp_peeras": "2",
		"bgp_peerpass": "s3cret", "bgp_multihop": "true", "bgp_sourceip": "10.0.0.1", "bgp_hold_time": "9",
		"mpbgp_nexthop": "auto_sourceif", "mpbgp_ipv4": "10.0.0.7", "mpbgp_ipv6": "fd00::7",
		"lb_enable": "true", "lb_port": "8443", "cp_enable": "false", "vip_arp": "true", "bgp_enable": "false", "vip_leaderelection": "",
		"vip_routingtable": "true", "vip_routingtableid": "77",
	}
	names := map[string]bool{}
	for _, row := range kubevip.Table() {
		names[row.Names[0]] = true
	}
	for _, row := range kubevip.Table() {
		for _, name := range row.Names {
			if name[0] == '-' {
				continue
			}
			env := map[string]string{"cp_enable": "true", "bgp_enable": "true", "address": "10.3.0.100", "bgp_peeraddress": "10.0.0.254", "bgp_as": "65001"}
			switch name {
			case "vip_address":
				delete(env, "address")
			case "vip_arpRate", "lb_enable", "lb_port":
				delete(env, "bgp_enable")
				env["vip_arp"] = "true"
			case "vip_routingtable", "vip_routingtableid":
				delete(env, "bgp_enable")
			case "control_plane_health_check_ca_path":
				env["control_plane_health_check_address"] = "https://127.0.0.1/"
			case "mpbgp_ipv4", "mpbgp_ipv6":
				env["mpbgp_nexthop"] = "fixed"
			}
			if row.Needs != "" {
				if !names[row.Needs] {
					t.Fatalf("%s needs %s, which is not a setting", name, row.Needs)
				}
				env[row.Needs] = "true"
			}
			before := fromEnv(t, env)
			value, ok := values[name]
			if !ok && row.Becomes != "" {
				t.Fatalf("no value for %s in this test", name)
			}
			if !ok {
				value = "true"
			}
			env[name] = value
			if name != "vip_leaderelection" { // has no effect beside bgp_enable
				checkEffect(t, row, name, before, fromEnv(t, env))
			}
		}
	}
}

func fromEnv(t *testing.T, env map[string]string) *migrate.Result {
	t.Helper()
	var b strings.Builder
	b.WriteString("PATH=/bin\n")
	for name, value := range env {
		fmt.Fprintf(&b, "%s=%s\n", name, value)
	}
	return fromKubeVIP.text(t, b.String(), migrate.Options{})
}
