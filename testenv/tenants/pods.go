package tenants

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"path"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/herald-vip/herald/internal/wake"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/step"
)

// maxPods bounds the number of a tenant's pods over the whole run: each needs a machine.
const maxPods = 60

func (l *Lab) hasPods() bool { return l.options.Programs["echo-basic"] != "" }

// Pod is a machine for a pod.
type Pod struct {
	Name    string
	Address netip.Addr
}

// Pods returns a cluster's machines for pods.
func (c *Cluster) Pods() (out []Pod) {
	if !c.lab.hasPods() || c != c.lab.Tenants[0] {
		return nil
	}
	for i := range maxPods {
		out = append(out, Pod{fmt.Sprintf("%s-pod%d", c.Name, i), netip.MustParseAddr(fmt.Sprintf("%s.%d", c.Net, 100+i))})
	}
	return out
}

// BootPods boots the first tenant's Kubernetes controllers for Deployments. RunPods runs their
// pods.
func (l *Lab) BootPods(ctx context.Context) error {
	if !l.hasPods() {
		return errors.New("this lab has no pods: start it with the program echo-basic")
	}
	return l.Boot(ctx, l.Tenants[0].Name+"-controllers")
}

// RunPods replaces the scheduler and the kubelets of the first tenant until the
// context ends. It runs every pod as gateway-api's test server, with the pod's
// variables and Secrets, and ignores its image. The pod is ready immediately.
func (l *Lab) RunPods(ctx context.Context) error {
	c := l.Tenants[0]
	free := c.Pods()
	running := make(map[types.UID]*lab.Process)
	for wake.Pause(ctx, 100*time.Millisecond) {
		var pods corev1.PodList
		if err := c.API.Get(ctx, "/api/v1/pods", &pods); err != nil {
			continue // the context has ended, or the next look may succeed
		}
		for i := range pods.Items {
			p := &pods.Items[i]
			process, ok := running[p.UID]
			switch {
			case p.DeletionTimestamp != nil:
				if ok {
					delete(running, p.UID)
					if err := process.Kill(); err != nil {
						return err
					}
				}
				_ = c.API.Do(ctx, "DELETE", podPath(p)+"?gracePeriodSeconds=0", nil, nil) // repeated while the pod exists
			case !ok && len(free) == 0:
				return fmt.Errorf("pod %s/%s: all %d machines for pods have been used", p.Namespace, p.Name, maxPods)
			case !ok:
				files, err := c.volumes(ctx, p)
				if err != nil {
					continue // a Secret may come after the pod
				}
				process, err := c.runPod(ctx, p, files, free[0])
				free = free[1:]
				if process != nil { // the pod may be gone before its start is reported
					running[p.UID] = process
				} else if ctx.Err() == nil {
					return fmt.Errorf("pod %s/%s: %w", p.Namespace, p.Name, err)
				}
			}
		}
	}
	return nil
}

func podPath(p *corev1.Pod) string { return "/api/v1/namespaces/" + p.Namespace + "/pods/" + p.Name }

// runPod starts a pod on a machine, and updates its status.
func (c *Cluster) runPod(ctx context.Context, p *corev1.Pod, files map[string]string, on Pod) (process *lab.Process, err error) {
	err = step.Run(func() {
		n := c.lab.Node(on.Name)
		step.Do(n.Boot(ctx))
		for file, text := range files {
			step.Get(n.Run(ctx, "sh", "-euc", `mkdir -p "$(dirname "$1")"; printf %s "$2" >"$1"`, "sh", file, text))
		}
		environment := []string{"PATH=/usr/local/bin:/usr/bin:/bin", "POD_NAME=" + p.Name, "NAMESPACE=" + p.Namespace, "POD_IP=" + on.Address.String()}
		for _, e := range p.Spec.Containers[0].Env {
			if e.ValueFrom == nil {
				environment = append(environment, e.Name+"="+e.Value)
			}
		}
		process = step.Get(n.Start(&exec.Cmd{Args: []string{"echo-basic"}, Env: environment}))
		nodes := c.Nodes()
		binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: nodes[int(on.Address.As4()[3])%len(nodes)]}}
		binding.Name = p.Name
		step.Do(c.API.Create(ctx, podPath(p)+"/binding", binding))
		step.Do(c.API.Patch(ctx, podPath(p)+"/status", map[string]any{"status": corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: on.Address.String(), PodIPs: []corev1.PodIP{{IP: on.Address.String()}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		}}))
	})
	return process, err
}

// volumes returns the files of a pod's container from Secrets.
func (c *Cluster) volumes(ctx context.Context, p *corev1.Pod) (map[string]string, error) {
	files := make(map[string]string)
	for _, v := range p.Spec.Volumes {
		if v.Secret == nil {
			continue
		}
		mounts := p.Spec.Containers[0].VolumeMounts
		at := slices.IndexFunc(mounts, func(m corev1.VolumeMount) bool { return m.Name == v.Name })
		if at < 0 {
			continue
		}
		var s corev1.Secret
		if err := c.API.Get(ctx, "/api/v1/namespaces/"+p.Namespace+"/secrets/"+v.Secret.SecretName, &s); err != nil {
			return nil, err
		}
		for _, item := range v.Secret.Items {
			files[path.Join(mounts[at].MountPath, item.Path)] = string(s.Data[item.Key])
		}
	}
	return files, nil
}
