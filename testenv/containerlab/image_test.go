//go:build containerlab

package containerlab

import (
	"fmt"
	"strings"
	"testing"
)

// TestImage runs the image with only the permissions of the static pod's manifest, in
// the network of a node. It checks that an FRR router learns the VIP and loses it.
func TestImage(t *testing.T) {
	const node, router, speaker = "herald-image-node", "herald-image-router", "herald-image-speaker"
	start(t, node, "--network", "none", "--cap-add", "NET_ADMIN", "--entrypoint", "sleep", frrImage(), "infinity")
	start(t, router, "--network", "none", "--cap-add", "NET_ADMIN", "--cap-add", "SYS_ADMIN",
		"--volume", writeFile(t, "daemons", "bgpd=yes\nvtysh_enable=yes\n")+":/etc/frr/daemons:ro",
		"--volume", writeFile(t, "frr.conf", routerConf)+":/etc/frr/frr.conf:ro", frrImage())
	must(t, "ip", "link", "add", "eth1", "netns", pid(t, node), "type", "veth", "peer", "name", "eth1", "netns", pid(t, router))
	for container, address := range map[string]string{node: "10.0.1.1/24", router: "10.0.1.254/24"} {
		must(t, "docker", "exec", container, "ip", "addr", "add", address, "dev", "eth1")
		must(t, "docker", "exec", container, "ip", "link", "set", "eth1", "up")
	}
	start(t, node+"-apiserver", "--network", "container:"+node, testenvImage, "apiserver", "--listen", ":6443", "--name", "m1")

	start(t, speaker, "--network", "container:"+node, "--read-only", "--security-opt", "no-new-privileges",
		"--cap-drop", "ALL", "--cap-add", "NET_ADMIN", "--cap-add", "NET_RAW", "--cap-add", "NET_BIND_SERVICE",
		"--tmpfs", "/run/herald", "--volume", t.TempDir()+":/var/lib/herald", "--volume", writeFile(t, "herald.yaml", speakerConf)+":/etc/herald/herald.yaml:ro", heraldImage)

	routed := func(want bool) func() error {
		return func() error {
			route, err := command(t.Context(), "docker", "exec", router, "ip", "route", "show", "10.99.0.10")
			if err == nil && strings.Contains(route, "via 10.0.1.1 dev eth1") != want {
				err = fmt.Errorf("the router's route to the VIP is %q, want a route: %t", route, want)
			}
			return err
		}
	}
	eventually(t, routed(true))
	if _, err := served(t, router, "10.99.0.10:6443"); err != nil {
		t.Error(err)
	}
	status := must(t, "docker", "exec", speaker, "herald", "status")
	t.Logf("herald status:\n%s", status)
	t.Logf("capabilities of the speaker:\n%s", must(t, "grep", "Cap", "/proc/"+pid(t, speaker)+"/status"))

	must(t, "docker", "kill", "--signal", "KILL", node+"-apiserver")
	eventually(t, routed(false))
	// At its end the speaker must leave nothing behind, and report no error.
	must(t, "docker", "stop", "--time", "20", speaker)
	if code := must(t, "docker", "inspect", "--format", "{{.State.ExitCode}}", speaker); code != "0" {
		t.Errorf("the speaker ended with code %s, want 0", code)
	}
}

// pid returns the process ID of a container on the host.
func pid(t *testing.T, container string) string {
	t.Helper()
	return must(t, "docker", "inspect", "--format", "{{.State.Pid}}", container)
}

const routerConf = `frr defaults traditional
log stdout informational
router bgp 64500
 no bgp ebgp-requires-policy
 timers bgp 1 3
 neighbor 10.0.1.1 remote-as 64512
 neighbor 10.0.1.1 timers connect 1
`

const speakerConf = `apiVersion: herald.dev/v1alpha1
kind: Speaker
nodeName: m1
vips:
- {name: control-plane, addresses: [10.99.0.10], announce: bgp, checks: [apiserver]}
checks:
- {name: apiserver, http: {url: "http://127.0.0.1:6443/readyz"}}
bgp:
  asn: 64512
  routerID: 10.0.1.1
  peers:
  - {address: 10.0.1.254, asn: 64500}
`
