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

// kubeadmCA has signed the certificate of kubeadm's API servers.
const kubeadmCA = "/etc/kubernetes/pki/ca.crt"

// servicesNamespace is where the manifests for Services are, unless the configuration
// names another.
const servicesNamespace = "herald-system"

// firstFree is the lowest port that needs no right.
const firstFree = 1024

// needs are what a configuration asks of the node that runs it.
type needs struct {
	// Capabilities without the CAP_ in front.
	Capabilities []string
	Realtime     bool
	// Exec is whether checks run commands.
	Exec bool
	// Services is whether VIPs of Services are announced, which takes the API, and
	// Account whether that is by the pod's service account. Namespace is where a
	// DaemonSet is.
	Services, Account bool
	Namespace         string
	// Worker is whether there are balancers and nothing that the node itself serves, as on
	// nodes other than those of the control plane.
	Worker bool
	// Name is that of a DaemonSet and its ConfigMap, and Component what its pods are called
	// in a label, by which two of them are told apart.
	Name, Component string
	// Folder is that of the configuration, and SocketFolder that of the control socket.
	Folder, SocketFolder string
	// Tun is whether routes are kept in tables of the kernel, which takes /dev/net/tun.
	Tun bool
	// Files are those that the configuration names outside of Folder.
	Files []file
	// ProbeHost and ProbePort are where metrics and health are served; the port is 0 if nowhere.
	ProbeHost string
	ProbePort int
	// StopSeconds is how long the end of the process may take.
	StopSeconds int
}

// file is one that a pod gets, by the name of its volume.
type file struct{ Name, Path string }

// usual is what Options without a configuration are to fit.
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
		n.Name, n.Component = "herald-worker", "worker" // beside the one of the control plane
	}
	for _, name := range filesOf(c) {
		if err := plain("a file of the configuration", name, path); err != nil {
			return needs{}, err
		}
		switch {
		case !strings.HasPrefix(name, n.Folder+"/"):
			n.Files = append(n.Files, file{fmt.Sprintf("file-%d", len(n.Files)), name})
		case kind == DaemonSet && filepath.Dir(name) != n.Folder:
			return needs{}, fmt.Errorf("%s is in a folder below %s, which comes from a ConfigMap and a Secret without any: put it into %s itself", name, n.Folder, n.Folder)
		}
	}
	for _, k := range c.Checks {
		if k.File != nil && kind != Systemd && !strings.HasPrefix(filepath.Clean(k.File.Path), n.Folder+"/") {
			return needs{}, fmt.Errorf("the check %s looks for %s, which a pod does not see: of the node's flags it sees those in %s", k.Name, k.File.Path, n.Folder)
		}
	}
	if err := plain("admin.socket", c.Admin.Socket, path); err != nil {
		return needs{}, err
	}
	n.SocketFolder = filepath.Dir(c.Admin.Socket)
	if n.SocketFolder == n.Folder {
		return needs{}, fmt.Errorf("admin.socket is in %s, as the configuration is, which Herald only reads: put it into another folder, such as /run/herald", n.Folder)
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
	n.StopSeconds = stopSeconds(linger)
	var err error
	n.ProbeHost, n.ProbePort, err = probed(c.Metrics.Listen)
	return n, err
}

// RuntimeDirectory is SocketFolder as systemd makes and removes it, or empty if
// it is elsewhere than in /run.
func (n needs) RuntimeDirectory() string {
	if name, ok := strings.CutPrefix(strings.TrimPrefix(n.SocketFolder, "/var"), "/run/"); ok {
		return name
	}
	return ""
}

// own refuses folders that are not for one program alone, or not for this.
func own(what, folder string) error {
	if folder == "/var/lib/herald" {
		return fmt.Errorf("%s is in %s, where Herald keeps what outlasts a reboot: put it into another folder", what, folder)
	}
	if strings.Count(folder, "/") < 2 || folder == "/etc/kubernetes" || folder == "/var/run" {
		return fmt.Errorf("%s is in %s, which others share: put it into a folder of its own below, which Herald can be given as a whole", what, folder)
	}
	return nil
}

// stopSeconds is the longest linger and what the daemon allows for: 10 s for a
// drain and 2 s to close the sessions, and some for a busy node.
func stopSeconds(linger time.Duration) int {
	const slack = 20 * time.Second
	return int(math.Ceil((linger + slack).Seconds()))
}

// capabilities are those without which the configuration does not do what it
// says, in order.
func capabilities(c *config.Config) []string {
	out := []string{"NET_ADMIN"} // addresses on links, nftables, conntrack, settings of links
	if lowPort(c) {
		out = append(out, "NET_BIND_SERVICE")
	}
	if c.Services != nil || c.Flat() || slices.ContainsFunc(c.Checks, func(k health.Check) bool { return k.ICMP != nil }) || c.BGP != nil && slices.ContainsFunc(c.BGP.Peers, func(p v1alpha1.Peer) bool { return p.Interface != "" }) {
		out = append(out, "NET_RAW") // ICMP, ARP and neighbour discovery, which pools and peers in the API may ask for
	}
	if c.Realtime {
		out = append(out, "IPC_LOCK", "SYS_NICE")
	}
	if hasExec(c) {
		out = append(out, "SETGID", "SETUID") // to be another user
	}
	slices.Sort(out)
	return out
}

func hasExec(c *config.Config) bool {
	return slices.ContainsFunc(c.Checks, func(k health.Check) bool { return k.Exec != nil })
}

// lowPort reports whether Herald listens on one.
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

// filesOf are the files that the configuration names, each once, in order, and by
// the shortest path: the kubelet mounts none with "..".
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

// probed is where the node itself reaches what listens on address.
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
