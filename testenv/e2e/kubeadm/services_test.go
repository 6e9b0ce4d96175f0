//go:build e2e && kubeadm

package kubeadm

import (
	"strings"
	"testing"

	"github.com/herald-vip/herald/testenv/e2e/site"
)

const servicesGuide = "../../../docs/services.md"

// shop is the Deployment behind the guide's Service.
const shop = `apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  replicas: 3
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      terminationGracePeriodSeconds: 10
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, nodeTaintsPolicy: Honor,
         matchLabelKeys: [pod-template-hash], labelSelector: {matchLabels: {app: shop}}}
      containers:
      - name: shop
        image: registry.k8s.io/pause:3.10.2
        command: [/bin/busybox, sh, -c, "trap 'busybox sleep 4; exit' TERM; busybox httpd -p 8080 -h /bin; while :; do busybox sleep 1; done"]
        readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
`

// TestServices installs Herald as a DaemonSet by the guide. A client behind the router
// reaches a Service through kube-proxy.
func TestServices(t *testing.T) {
	const vip = "198.51.100.1"
	c := newCluster(t, "10.0.1.1", "no zebra nexthop kernel enable\n"+block(t, servicesGuide, "Over BGP", "frr"))
	c.load(t, version, "m1", "m2", "m3", "w1")
	c.everywhere(t, "ctr -n k8s.io images import /opt/herald/herald_image.tar\n"+tagged("dev"), "m1", "m2", "m3", "w1")
	c.start(t, guide)
	workers := []string{"m2", "m3", "w1"}
	for _, w := range workers {
		c.work(t, w)
	}
	c.nodesReady(t, "m1", "m2", "m3", "w1")
	c.vip = vip

	c.sh(t, "m1", "ln -s /opt/manifests .\n"+block(t, servicesGuide, "Install", "sh"))
	c.write(t, "m1", "root/shop.yaml", shop)
	first := site.Blocks(t, servicesGuide, "The first pool", "yaml")
	c.write(t, "m1", "root/objects.yaml", strings.Join([]string{first[0], first[1], site.Blocks(t, servicesGuide, "Over BGP", "yaml")[0]}, "---\n"))
	c.sh(t, "m1", `kubectl -n herald-system rollout status daemonset herald
kubectl apply -f objects.yaml -f shop.yaml
kubectl rollout status deployment shop`)
	c.hops(t, workers...)
	c.connect(t, "c1", vip+":80")
	for _, mode := range []string{"iptables", "nftables"} {
		c.happens(t, "kube-proxy by "+mode, -1, func(t *testing.T) {
			c.sh(t, "m1", `kubectl -n kube-system get configmap kube-proxy -o yaml | sed 's/mode: .*/mode: `+mode+`/' | kubectl apply -f -
kubectl -n kube-system rollout restart daemonset kube-proxy
kubectl -n kube-system rollout status daemonset kube-proxy`)
			for _, w := range workers {
				c.until(t, w, `[ "$(curl -sf http://127.0.0.1:10249/proxyMode)" = `+mode+` ]`)
			}
			c.client.GoesOn(t, 200) // until the rules of the last node are there
		})
		c.happens(t, "reached by "+mode, 0, func(t *testing.T) { c.client.GoesOn(t, 500) })
		c.happens(t, "externalTrafficPolicy Local by "+mode, 0, func(t *testing.T) {
			c.sh(t, "m1", `kubectl patch service shop -p '{"spec": {"externalTrafficPolicy": "Local"}}'`)
			c.client.GoesOn(t, 500)
			c.hops(t, workers...)
		})
		c.happens(t, "node drained by "+mode, 0, func(t *testing.T) {
			c.sh(t, "m1", "kubectl drain w1 --ignore-daemonsets")
			c.hops(t, "m2", "m3")
		})
		c.happens(t, "node without pods switched off by "+mode, 0, func(t *testing.T) {
			site.Must(t, c.Node("w1").PowerOff())
			c.client.GoesOn(t, 500)
		})
		c.happens(t, "node back, all pods replaced by "+mode, 0, func(t *testing.T) {
			site.PowerOn(t, c.Node("w1"))
			c.sh(t, "m1", "kubectl uncordon w1\nkubectl rollout restart deployment shop\nkubectl rollout status deployment shop")
			c.until(t, "m1", `[ "$(kubectl get pods -l app=shop --no-headers | wc -l)" = 3 ]`) // the replaced pods have ended
			c.hops(t, workers...)
			c.client.GoesOn(t, 200) // and each kube-proxy, which writes rules at most once per second, has followed
		})
		c.happens(t, "externalTrafficPolicy Cluster by "+mode, 0, func(t *testing.T) {
			c.sh(t, "m1", `kubectl patch service shop -p '{"spec": {"externalTrafficPolicy": "Cluster"}}'`)
			c.client.GoesOn(t, 500)
			c.hops(t, workers...)
		})
	}
}
