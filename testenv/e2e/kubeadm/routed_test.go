//go:build e2e && kubeadm

package kubeadm

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/herald-vip/herald/testenv/e2e/site"
)

// overBGP returns the file of a master behind the router r1: the guide's, for one peer.
func overBGP(t *testing.T) string {
	t.Helper()
	return "apiVersion: herald.dev/v1alpha1\nkind: Speaker\n" + block(t, guide, "Files on each master", "yaml") +
		"bgp:\n  asn: 64512\n  peers:\n  - {address: 10.0.1.254, asn: 64500, bfd: {interval: 200ms}}\n"
}

// TestRouted is the life of a cluster with a VIP announced over BGP by static pods. It
// lasts from before `kubeadm init` to the replacement of a master, with a client
// connecting all the time.
func TestRouted(t *testing.T) {
	const vip = "10.99.0.10"
	c := newCluster(t, vip, takesVIP(t))
	c.connect(t, "c1", vip+":6443")
	c.load(t, version, "m1", "m2", "m3", "w1")
	masters := []string{"m1", "m2", "m3"}

	c.prepare(t, "m1", overBGP(t))
	c.happens(t, "init", -1, func(t *testing.T) {
		c.start(t, guide)
		c.hops(t, "m1")
	})
	for i, m := range masters[1:] {
		c.happens(t, m+" joins", 0, func(t *testing.T) {
			c.prepare(t, m, overBGP(t))
			c.join(t, m)
			c.hops(t, masters[:i+2]...)
		})
	}
	c.happens(t, "w1 joins", 0, func(t *testing.T) {
		c.work(t, "w1")
		c.nodesReady(t, "m1", "m2", "m3", "w1")
	})
	const shared = vip + ":6443"
	c.wantServers(t, "m1", map[string]string{"admin.conf": shared, "super-admin.conf": shared, "kubelet.conf": "10.0.1.1:6443",
		"controller-manager.conf": "10.0.1.1:6443", "scheduler.conf": "10.0.1.1:6443"})
	c.wantServers(t, "m2", map[string]string{"admin.conf": shared, "kubelet.conf": "10.0.1.2:6443",
		"controller-manager.conf": "10.0.1.2:6443", "scheduler.conf": "10.0.1.2:6443"})
	c.wantServers(t, "w1", map[string]string{"kubelet.conf": shared})
	routes := site.WatchRoutes(t, c.Node("r1"))
	c.routes = routes
	// leaves waits until the router's route has been without a machine since the last mark, and is
	// back.
	leaves := func(t *testing.T, machine string) {
		t.Helper()
		hop := netip.MustParseAddr(c.address(t, machine))
		site.Eventually(t, ready, func() error {
			steps := routes.Steps(vip)
			left := slices.ContainsFunc(steps, func(s site.Step) bool { return !slices.Contains(s.NextHops, hop) })
			return site.ErrorIf(!left, "the router's route never lost %s: %v", hop, steps)
		})
		c.hops(t, masters...)
	}
	c.happens(t, "API server killed", 20, func(t *testing.T) {
		c.sh(t, "m2", "pkill -KILL -x kube-apiserver")
		leaves(t, "m2")
	})
	c.happens(t, "etcd killed", 20, func(t *testing.T) { // it may be back before the API server reports it missing
		c.sh(t, "m3", "pkill -KILL -x etcd")
		c.client.GoesOn(t, 1500)
		c.hops(t, masters...)
	})
	c.happens(t, "kubelet killed", 0, func(t *testing.T) {
		c.sh(t, "m1", "pkill -KILL -x kubelet")
		c.client.GoesOn(t, 500)
		routes.Untouched(t)
	})
	c.happens(t, "containerd down for 2,000 connections", 0, func(t *testing.T) {
		c.sh(t, "m1", "systemctl stop containerd")
		c.client.GoesOn(t, 2000)
		routes.Untouched(t)
		c.sh(t, "m1", "systemctl start containerd")
		c.nodesReady(t, "m1", "m2", "m3", "w1")
	})
	c.happens(t, "flap of the router's link", -1, func(t *testing.T) {
		link := c.Link("r1", "lan")
		site.Must(t, link.Down())
		c.hops(t)
		site.Must(t, link.Heal())
		c.hops(t, masters...)
		c.reached(t, masters...)
	})
	c.happens(t, "power loss", 60, func(t *testing.T) {
		site.Must(t, c.Node("m3").PowerOff())
		c.hops(t, "m1", "m2")
	})
	c.happens(t, "boot", 0, func(t *testing.T) {
		site.PowerOn(t, c.Node("m3"))
		c.hops(t, masters...)
	})
	c.happens(t, "etcd without a quorum", -1, func(t *testing.T) {
		site.Must(t, c.Node("m2").PowerOff())
		site.Must(t, c.Node("m3").PowerOff())
		c.hops(t)
		site.PowerOn(t, c.Node("m2"))
		site.PowerOn(t, c.Node("m3"))
		c.hops(t, masters...)
		// If a member has not caught up yet, the loss of another would end the quorum.
		etcdctl := strings.Split(site.Blocks(t, guide, "Remove a master", "sh")[1], "\n")[1]
		c.until(t, "m1", etcdctl+"\n$etcdctl endpoint health --cluster")
	})
	c.happens(t, "drained and rebooted", 0, func(t *testing.T) {
		c.sh(t, "m2", replace(t, block(t, guide, "Reboot", "sh"), "reboot\n", ""))
		c.reboot(t, "m2")
		c.hops(t, masters...)
	})
	for _, m := range masters {
		c.happens(t, "certificates renewed on "+m, 0, func(t *testing.T) {
			c.sh(t, m, "herald drain\nkubeadm certs renew all")
			c.restart(t, m, "true")
		})
	}
	for _, m := range masters {
		c.happens(t, "anonymous users kept out of "+m, 0, func(t *testing.T) {
			c.write(t, m, "etc/kubernetes/pki/anonymous.yaml", block(t, guide, "No anonymous users", "yaml"))
			c.sh(t, m, "herald drain")
			c.restart(t, m, "sed -i 's!^    - kube-apiserver$!&\\n    - --authentication-config=/etc/kubernetes/pki/anonymous.yaml!' /etc/kubernetes/kube-apiserver.yaml")
			if code := c.sh(t, m, "curl -sk -o /dev/null -w '%{http_code}' https://127.0.0.1:6443/version"); code != "401" {
				t.Errorf("an anonymous user is answered by %s", code)
			}
		})
	}
	c.happens(t, "m3 reset", 0, func(t *testing.T) {
		lines := strings.Split(block(t, guide, "Remove a master", "sh"), "\n")
		c.sh(t, "m3", replace(t, lines[0]+"\n"+lines[1], "kubeadm reset", "kubeadm reset --force"))
		c.sh(t, "m1", lines[3])
		c.hops(t, "m1", "m2")
		c.nodesReady(t, "m1", "m2", "w1")
	})
	c.happens(t, "m3 joins again", 0, func(t *testing.T) {
		c.prepare(t, "m3", overBGP(t))
		c.join(t, "m3")
		c.hops(t, masters...)
	})
	c.happens(t, "m3 dead, replaced by another m3", 60, func(t *testing.T) {
		site.Must(t, c.Node("m3").PowerOff())
		c.hops(t, "m1", "m2")
		c.sh(t, "m1", site.Blocks(t, guide, "Remove a master", "sh")[1])
		c.furnish(t, "m3", "10.0.1.4")
		site.MustRun(t, c.Node("r1"), "vtysh", "-c", "configure terminal", "-c", "router bgp 64500", "-c", "neighbor 10.0.1.4 peer-group masters")
		site.PowerOn(t, c.Node("m3"))
		c.load(t, version, "m3")
		c.prepare(t, "m3", overBGP(t))
		c.join(t, "m3")
		c.hops(t, masters...)
	})

	c.load(t, next, "m1", "m2", "m3")
	for i, m := range masters {
		c.happens(t, m+" upgraded to "+next, 0, func(t *testing.T) {
			commands := block(t, guide, "Upgrade", "sh")
			if i == 0 {
				commands = replace(t, commands, "kubeadm upgrade node", "kubeadm upgrade apply "+next+" --yes")
			}
			commands = replace(t, commands, "apt-get install -y kubeadm=VERSION", "/lab/install "+next) // it contains the kubelet, too
			c.sh(t, m, replace(t, commands, "apt-get install -y kubelet=VERSION\n", ""))
			c.hops(t, masters...)
			c.until(t, "m1", `[ "$(kubectl get node `+m+` -o jsonpath='{.status.nodeInfo.kubeletVersion}')" = `+next+` ]`)
			if out, err := c.kubectl(t, "m1", "-n kube-system get pod kube-apiserver-"+m+" -o jsonpath='{.spec.containers[0].image}'"); err != nil || !strings.HasSuffix(out, ":"+next) {
				t.Errorf("the API server of %s is %q, %v", m, out, err)
			}
		})
	}
	for _, m := range masters {
		c.happens(t, "Herald upgraded on "+m, 0, func(t *testing.T) {
			c.sh(t, m, tagged("next"))
			commands := strings.Split(site.Blocks(t, guide, "Upgrade", "sh")[1], "\n")[1:]
			c.sh(t, m, replace(t, strings.Join(commands, "\n"), "registry.example.com/herald:v0.2.0", "herald:next"))
			site.Eventually(t, ready, func() error {
				out, err := c.kubectl(t, "m1", "-n kube-system get pod herald-"+m+` -o jsonpath='{.spec.containers[0].image} {.status.containerStatuses[0].ready}'`)
				return site.Check(err, !strings.HasSuffix(out, "herald:next true"), "the pod of %s has %q", m, out)
			})
			leaves(t, m)
		})
	}
	c.nodesReady(t, "m1", "m2", "m3", "w1")
}

// restart restarts a drained master's API server: it takes its manifest away, changes
// it and puts it back, and undrains the master when the API server is ready.
func (c *cluster) restart(t *testing.T, master, change string) {
	t.Helper()
	c.sh(t, master, "mv /etc/kubernetes/manifests/kube-apiserver.yaml /etc/kubernetes/")
	c.until(t, master, "! pgrep -x kube-apiserver")
	c.sh(t, master, change+"\nmv /etc/kubernetes/kube-apiserver.yaml /etc/kubernetes/manifests/")
	c.until(t, master, "curl -sfk https://127.0.0.1:6443/readyz")
	c.sh(t, master, "herald undrain")
	c.hops(t, "m1", "m2", "m3")
}

// tagged returns a command that gives Herald's image another tag.
func tagged(tag string) string {
	return "ctr -n k8s.io images tag docker.io/library/herald:$(herald version | cut -d' ' -f2) docker.io/library/herald:" + tag + "\n"
}

// until waits until a script succeeds.
func (c *cluster) until(t *testing.T, machine, script string) {
	t.Helper()
	site.Eventually(t, ready, func() error { _, err := c.try(t, machine, script); return err })
}
