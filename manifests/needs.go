package manifests

import (
	"cmp"
	"fmt"
	"math"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/internal/yaml"
)

// kubeadmCA is the CA of kubeadm's API servers.
const kubeadmCA = "/etc/kubernetes/pki/ca.crt"

// servicesNamespace is the default namespace of the manifests for Services.
const servicesNamespace = "herald-system"

// firstFree is the lowest port that needs no capability.
const firstFree = 1024

// needs are the needs of a configuration on a node.
type needs struct {
	// Capabilities without the CAP_ in front.
	Capabilities []string
	Realtime     bool
	// Exec reports that checks run commands.
	Exec bool
	// Services reports that VIPs of Services are announced, which needs the API. Account reports that the
	// pod's service account is used for that. Namespace is that of a DaemonSet.
	Services, Account bool
	Namespace         string
	// Worker reports that there are only balancers, as on nodes outside the control plane.
	Worker bool
	// Name is the name of a DaemonSet and its ConfigMap. Component is the label that tells the pods of two
	// DaemonSets apart.
	Name, Component string
	// Folder has the configuration, SocketFolder the control socket.
	Folder, SocketFolder string
	// Tun reports that VIPs are announced by kernel routes, which needs /dev/net/tun.
	Tun bool
	// Files are the files outside of Folder.
	Files []file
	// ProbeHost and ProbePort are the address of metrics and health for probes; the port is 0 if off.
	ProbeHost string
	ProbePort int
	// StopSeconds limits the time to stop.
	StopSeconds int
}

// file is a file for a pod, with the name of its volume.
type file struct{ Name, Path string }

// usual returns the configuration for Options without one.
func usual() *config.Config {
	c := &config.Config{
		VIPs:   []config.VIP{{Announce: config.AnnounceARP, Linger: 10 * time.Second}},
		Checks: []health.Check{{HTTP: &health.HTTP{CAFile: kubeadmCA}}},
		BGP:    &config.BGP{Listen: &config.Listen{Port: 179}},
	}
	yaml.SetDefaults(c)
	return c
}

func needsOf(kind Kind, o Options) (needs, error) {
	if err := plain("the path of the configuration", o.File, path); err != nil {
		return needs{}, err
	}
	n := needs{Folder: filepath.Dir(o.File), Namespace: "kube-system", Name: "herald", Component: "speaker"}
	if err := own("the configuration", n.Folder); err != nil {
		return needs{}, err
	}
	c := o.Config
	if c == nil {
		c = usual()
	}
	n.Capabilities, n.Realtime, n.Exec = capabilities(c), c.Realtime, hasExec(c)
	n.Tun = slices.ContainsFunc(c.VIPs, func(v config.VIP) bool { return v.Announce == config.AnnounceKernel })
	if c.Services != nil {
		n.Services, n.Account = true, c.Services.Kubeconfig == ""
		n.Namespace = cmp.Or(c.Services.Namespace, servicesNamespace)
	}
	n.Worker = len(c.Balancers) > 0 && len(c.VIPs)+len(c.Checks) == 0 && c.Services == nil
	if n.Worker {
		n.Name, n.Component = "herald-worker", "worker" // unlike the one of the control plane
	}
	for _, name := range filesOf(c) {
		if err := plain("a file of the configuration", name, path); err != nil {
			return needs{}, err
		}
		switch {
		case !strings.HasPrefix(name, n.Folder+"/"):
			n.Files = append(n.Files, file{fmt.Sprintf("file-%d", len(n.Files)), name})
		case kind == DaemonSet && filepath.Dir(name) != n.Folder:
			return needs{}, fmt.Errorf("%s is in a folder below %s, which comes from a ConfigMap and a Secret without folders: put it into %s itself", name, n.Folder, n.Folder)
		}
	}
	for _, k := range c.Checks {
		if k.File != nil && kind != Systemd && !strings.HasPrefix(filepath.Clean(k.File.Path), n.Folder+"/") {
			return needs{}, fmt.Errorf("the check %s needs %s, which is not visible in a pod: put it into %s", k.Name, k.File.Path, n.Folder)
		}
	}
	if err := plain("admin.socket", c.Admin.Socket, path); err != nil {
		return needs{}, err
	}
	n.SocketFolder = filepath.Dir(c.Admin.Socket)
	if n.SocketFolder == n.Folder {
		return needs{}, fmt.Errorf("admin.socket is in %s, the folder of the configuration, which is read-only: put it into another folder, such as /run/herald", n.Folder)
	}
	if err := own("admin.socket", n.SocketFolder); err != nil {
		return needs{}, err
	}
	var linger time.Duration
	for _, v := range c.VIPs {
		linger = max(linger, v.Linger)
	}
	if c.Services != nil {
		linger = max(linger, c.Services.Linger)
	}
	const slack = 20 * time.Second // 10 s for a drain, 2 s to close the sessions, and a reserve for a busy node
	n.StopSeconds = int(math.Ceil((linger + slack).Seconds()))
	var err error
	n.ProbeHost, n.ProbePort, err = probed(c.Metrics.Listen)
	return n, err
}

// RuntimeDirectory returns SocketFolder relative to /run, for systemd; empty if it is elsewhere.
func (n needs) RuntimeDirectory() string {
	if name, ok := strings.CutPrefix(strings.TrimPrefix(n.SocketFolder, "/var"), "/run/"); ok {
		return name
	}
	return ""
}

// own refuses a folder that other programs share, or that has another purpose.
func own(what, folder string) error {
	if folder == "/var/lib/herald" {
		return fmt.Errorf("%s is in %s, where Herald keeps its state: put it into another folder", what, folder)
	}
	if strings.Count(folder, "/") < 2 || folder == "/etc/kubernetes" || folder == "/var/run" {
		return fmt.Errorf("%s is in %s, which other programs share: put it into a folder of its own below", what, folder)
	}
	return nil
}

// capabilities returns the capabilities that a configuration needs, in order.
func capabilities(c *config.Config) []string {
	out := []string{"NET_ADMIN"} // addresses on links, nftables, conntrack, settings of links
	if lowPort(c) {
		out = append(out, "NET_BIND_SERVICE")
	}
	if c.Services != nil || c.Flat() || slices.ContainsFunc(c.Checks, func(k health.Check) bool { return k.ICMP != nil }) || c.BGP != nil && slices.ContainsFunc(c.BGP.Peers, func(p v1alpha1.Peer) bool { return p.Interface != "" }) {
		out = append(out, "NET_RAW") // ICMP, ARP and neighbour discovery, which pools and peers in the API may need
	}
	if c.Realtime {
		out = append(out, "IPC_LOCK", "SYS_NICE")
	}
	if hasExec(c) {
		out = append(out, "SETGID", "SETUID") // to become another user
	}
	slices.Sort(out)
	return out
}

func hasExec(c *config.Config) bool {
	return slices.ContainsFunc(c.Checks, func(k health.Check) bool { return k.Exec != nil })
}

// lowPort reports whether Herald listens below port 1024.
func lowPort(c *config.Config) bool {
	low := func(port uint16) bool { return port != 0 && port < firstFree }
	_, port, _ := probed(c.Metrics.Listen)
	return low(uint16(port)) ||
		c.BGP != nil && c.BGP.Listen != nil && low(c.BGP.Listen.Port) ||
		c.Election != nil && low(c.Election.Bind.Port()) ||
		slices.ContainsFunc(c.Balancers, func(b balancer.Config) bool {
			return b.Mode == balancer.Proxy && slices.ContainsFunc(b.Listen, func(l balancer.Listener) bool { return low(l.Address.Port()) || low(l.Port) })
		})
}

// filesOf returns the files that the configuration names, each once, in order, by clean paths: the kubelet
// refuses "..".
func filesOf(c *config.Config) []string {
	var names []string
	for _, h := range c.HTTPChecks() {
		names = append(names, h.Files()...)
	}
	for _, k := range c.Checks {
		if k.Exec != nil {
			names = append(names, k.Exec.Command[0])
		}
	}
	if c.BGP != nil {
		for _, p := range c.BGP.Peers {
			names = append(names, p.PasswordFile)
		}
	}
	if c.Election != nil {
		names = append(names, c.Election.KeyFile)
	}
	if c.Services != nil {
		names = append(names, c.Services.Kubeconfig)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == "" })
	for i := range names {
		names[i] = filepath.Clean(names[i])
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// probed returns the host and port of a listener on address, as the node itself reaches it.
func probed(address string) (string, int, error) {
	if address == "" {
		return "", 0, nil
	}
	name, text, err := net.SplitHostPort(address)
	port, _ := strconv.Atoi(text)
	if err != nil || port == 0 {
		return "", 0, fmt.Errorf("metrics.listen is %q: a probe needs to know the port, want one of 1 to 65535", address)
	}
	switch name {
	case "", "0.0.0.0", "::", "localhost":
		return "127.0.0.1", port, nil
	}
	if !host.MatchString(name) {
		return "", 0, fmt.Errorf("metrics.listen is %q: a probe needs an address without a zone", address)
	}
	return name, port, nil
}
