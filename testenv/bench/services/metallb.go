package services

import (
	"context"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/testenv/clab"
	"github.com/herald-vip/herald/testenv/lab"
	cluster "github.com/herald-vip/herald/testenv/services"
	"github.com/herald-vip/herald/testenv/step"
)

// metalLB is MetalLB with its defaults, in its native BGP mode.
type metalLB struct {
	// dir is the folder of its programs, speaker and controller, and of its definitions, crds.
	dir string
}

// metalNamespace is the namespace of MetalLB's own objects.
const metalNamespace = "metallb-system"

// Name is metallb.
func (m *metalLB) Name() string { return "metallb" }

// Configure writes nothing: MetalLB needs only the kubeconfig.
func (m *metalLB) Configure(*cluster.Lab) error { return nil }

// Speaker has the arguments and the environment of MetalLB's own manifest, without the
// key of its member list.
func (m *metalLB) Speaker(l *cluster.Lab, node string) lab.Image {
	return m.image("speaker", "node-name="+node, "pod-name=speaker-"+node,
		"ml-bindaddr="+l.Address(node).String(), "ml-labels=app=metallb,component=speaker")
}

// Controller runs without webhooks, which only administrators need.
func (m *metalLB) Controller(*cluster.Lab) lab.Image {
	return m.image("controller", "webhook-mode=disabled")
}

func (m *metalLB) image(part string, flags ...string) lab.Image {
	argv := []string{"env", "KUBECONFIG=/etc/metallb/kubeconfig", "METALLB_BGP_TYPE=native", "METALLB_NAMESPACE=" + metalNamespace}
	if part == "controller" {
		argv = append(argv, "METALLB_POD_NAME=controller")
	}
	argv = append(argv, "/usr/local/bin/"+part)
	for _, f := range flags {
		argv = append(argv, "--"+f)
	}
	return func(n clab.Node) (lab.Program, error) {
		p, err := lab.Binary(filepath.Join(m.dir, part))(n)
		if err == nil {
			p.Daemons[0].Argv = argv
		}
		return p, err
	}
}

// Install creates MetalLB's kinds, the pods that its programs look up for themselves,
// and a pool with its advertisement for each way of announcing.
func (m *metalLB) Install(ctx context.Context, l *cluster.Lab) error {
	return step.Run(func() {
		step.Do(l.API.Define(ctx, step.Get(filepath.Glob(filepath.Join(m.dir, "crds", "*.yaml")))...))
		step.Do(l.API.Create(ctx, cluster.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metalNamespace}}))
		m.pod(ctx, l, "controller", "controller", "", cluster.APIAddress)
		for _, node := range l.Members() {
			m.pod(ctx, l, "speaker-"+node, "speaker", node, l.Address(node).String())
		}
		for _, o := range []struct{ version, resource, kind, name, spec string }{
			{"v1beta1", "ipaddresspools", "IPAddressPool", cluster.PoolBGP, fmt.Sprintf("{addresses: [%s], autoAssign: false}", cluster.ByBGP)},
			{"v1beta1", "ipaddresspools", "IPAddressPool", cluster.PoolARP, fmt.Sprintf("{addresses: [%s], autoAssign: false}", cluster.ByARP)},
			{"v1beta1", "bgpadvertisements", "BGPAdvertisement", cluster.PoolBGP, fmt.Sprintf("{ipAddressPools: [%s]}", cluster.PoolBGP)},
			{"v1beta1", "l2advertisements", "L2Advertisement", cluster.PoolARP, fmt.Sprintf("{ipAddressPools: [%s]}", cluster.PoolARP)},
			{"v1beta2", "bgppeers", "BGPPeer", "r1", fmt.Sprintf("{myASN: %d, peerASN: %d, peerAddress: %s, holdTime: 3s}", cluster.NodeASN, cluster.RouterASN, cluster.RouterAddress)},
		} {
			text := fmt.Sprintf("{apiVersion: metallb.io/%s, kind: %s, metadata: {name: %s, namespace: %s}, spec: %s}", o.version, o.kind, o.name, metalNamespace, o.spec)
			step.Do(l.API.Create(ctx, "/apis/metallb.io/"+o.version+"/namespaces/"+metalNamespace+"/"+o.resource, []byte(text)))
		}
	})
}

// pod creates a Pod object, as if it ran.
func (m *metalLB) pod(ctx context.Context, l *cluster.Lab, name, component, node, address string) {
	path := cluster.Namespaces + "/" + metalNamespace + "/pods"
	step.Do(l.API.Create(ctx, path, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metalNamespace, Labels: map[string]string{"app": "metallb", "component": component}},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: component, Image: component}}},
	}))
	step.Do(l.API.Patch(ctx, path+"/"+name+"/status", map[string]any{"status": corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}},
	}}))
}
