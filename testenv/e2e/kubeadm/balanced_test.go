//go:build e2e && kubeadm

package kubeadm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/herald-vip/herald/testenv/e2e/site"
)

const balancingGuide = "../../../docs/balancing.md"

// TestBalanced builds a cluster without a VIP. Its endpoint is 127.0.0.1:9443 on each
// node, by Herald as a service; a client on the worker connects to it all the time. At
// the end the worker changes to an external balancer, and back.
func TestBalanced(t *testing.T) {
	const endpoint = "127.0.0.1:9443"
	c := newCluster(t, "127.0.0.1", takesVIP(t))
	c.load(t, version, "m1", "m2", "m3", "w1")
	masters := []string{"m1", "m2", "m3"}
	for m := range addresses() {
		c.write(t, m, "etc/herald/gossip.key", site.ReadFile(t, "../../topologies/flat/m1/gossip.key"))
		c.write(t, m, "etc/herald/herald.yaml", balances(t, m))
		c.sh(t, m, block(t, balancingGuide, "Files on each node", "sh"))
	}
	c.connect(t, "w1", endpoint)
	lines := strings.Split(block(t, balancingGuide, "The others", "sh"), "\n")

	c.happens(t, "init", -1, func(t *testing.T) {
		c.start(t, balancingGuide, "localhost]", "localhost, 10.0.1.254]")
		for m := range addresses() {
			c.until(t, m, lines[0])
		}
	})
	for _, m := range masters[1:] {
		c.happens(t, m+" joins", 0, func(t *testing.T) { c.sh(t, m, c.joining.Replace(lines[0]+"\n"+lines[1])) })
	}
	c.happens(t, "w1 joins", 0, func(t *testing.T) {
		c.sh(t, "w1", c.joining.Replace(lines[0]+"\n"+lines[2]))
		c.nodesReady(t, "m1", "m2", "m3", "w1")
	})
	c.wantServers(t, "w1", map[string]string{"kubelet.conf": endpoint})
	c.wantServers(t, "m2", map[string]string{
		"admin.conf": endpoint, "controller-manager.conf": "10.0.1.2:6443", "scheduler.conf": "10.0.1.2:6443", "kubelet.conf": "10.0.1.2:6443",
	})

	c.happens(t, "API server killed", -1, func(t *testing.T) {
		c.sh(t, "m2", "pkill -KILL -x kube-apiserver")
		c.client.GoesOn(t, 100)
		c.until(t, "m2", "curl -sfk https://127.0.0.1:6443/readyz")
	})
	c.happens(t, "drained and rebooted", 0, func(t *testing.T) {
		c.sh(t, "m3", "herald drain --until-undrain")
		c.reboot(t, "m3")
		c.until(t, "m3", "curl -sfk https://127.0.0.1:6443/readyz")
		c.sh(t, "m3", "herald undrain")
	})
	c.happens(t, "power loss and boot", -1, func(t *testing.T) {
		site.Must(t, c.Node("m3").PowerOff())
		c.client.GoesOn(t, 500)
		site.PowerOn(t, c.Node("m3"))
		c.until(t, "m3", "curl -sfk https://127.0.0.1:6443/readyz")
	})
	c.happens(t, "Herald restarted on the worker", 0, func(t *testing.T) { c.sh(t, "w1", "systemctl restart herald") })

	// The external balancer is a HAProxy on the router, with the documented file.
	const external = "10.0.1.254:6443"
	site.Daemonise(t, c.Node("r1"), "sh", "-c", `printf %s "$1" >/run/haproxy.cfg && exec haproxy -db -f /run/haproxy.cfg`, "sh", haproxy(t))
	since := c.transition(t, "w1")
	c.happens(t, "worker to the site's balancer", 0, func(t *testing.T) {
		c.until(t, "w1", "curl -sfk https://"+external+"/readyz")
		c.moves(t, endpoint, external)
	})
	c.client.End()
	c.connect(t, "w1", external)
	c.happens(t, "type external", 0, func(t *testing.T) {
		c.loads(t, "w1", balances(t, "w1")+"loadBalancer: {type: external}\n")
		c.until(t, "w1", "! curl -sk --max-time 2 https://"+endpoint+"/readyz")
		c.nodesReady(t, "m1", "m2", "m3", "w1")
	})
	c.happens(t, "type internal", 0, func(t *testing.T) {
		c.loads(t, "w1", balances(t, "w1"))
		c.until(t, "w1", "curl -sfk https://"+endpoint+"/readyz")
	})
	c.client.End()
	c.connect(t, "w1", endpoint)
	c.happens(t, "worker to 127.0.0.1 again", 0, func(t *testing.T) {
		c.moves(t, external, endpoint)
		c.nodesReady(t, "m1", "m2", "m3", "w1")
	})
	if now := c.transition(t, "w1"); now != since {
		t.Errorf("the worker was not ready meanwhile: ready since %s, want %s", now, since)
	}
}

// balances returns the file of a machine: the guide's, with a master's checks.
func balances(t *testing.T, machine string) string {
	t.Helper()
	conf := "apiVersion: herald.dev/v1alpha1\nkind: Speaker\n" + block(t, balancingGuide, "Files on each node", "yaml")
	if machine == "w1" {
		return conf
	}
	_, checks, _ := strings.Cut(block(t, guide, "Files on each master", "yaml"), "checks:\n")
	return conf + "metrics: {listen: \"0.0.0.0:9474\"}\nchecks:\n" + checks
}

// moves changes the API server's address in a worker's kubeconfig, as in the guide.
func (c *cluster) moves(t *testing.T, old, new string) {
	t.Helper()
	c.sh(t, "w1", fmt.Sprintf("sed -i 's!https://%s!https://%s!' /etc/kubernetes/kubelet.conf\nsystemctl restart kubelet", old, new))
	c.wantServers(t, "w1", map[string]string{"kubelet.conf": new})
	c.client.GoesOn(t, 1000)
}

// loads gives Herald on a machine another file.
func (c *cluster) loads(t *testing.T, machine, config string) {
	t.Helper()
	c.write(t, machine, "etc/herald/herald.yaml", config)
	c.sh(t, machine, "pkill -HUP -x herald")
}

// transition returns when a node's readiness last changed.
func (c *cluster) transition(t *testing.T, node string) string {
	t.Helper()
	out := site.Get[string](t)(c.kubectl(t, "m1", "get node "+node+` -o jsonpath='{.status.conditions[?(@.type=="Ready")].lastTransitionTime}'`))
	return out
}

// haproxy returns the documented file without a registry, adapted to this test's balancer.
func haproxy(t *testing.T) string {
	t.Helper()
	conf, _, _ := strings.Cut(site.ReadFile(t, "../../../manifests/external/haproxy.cfg"), "frontend images")
	return strings.ReplaceAll(conf, "/healthz/master", "/healthz/kubernetes")
}
