package manifests_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/manifests"
	"github.com/herald-vip/herald/testenv/must"
)

// TestCurrent checks that the generated files are current.
func TestCurrent(t *testing.T) {
	for file, kind := range map[string]manifests.Kind{
		"static-pod.yaml":                 manifests.StaticPod,
		"kustomize/base/daemonset.yaml":   manifests.DaemonSet,
		"herald.service":                  manifests.Systemd,
		servicesFolder + "daemonset.yaml": manifests.DaemonSet,
		balancerFolder + "daemonset.yaml": manifests.DaemonSet,
		"tenants/agent.yaml":              manifests.Agent,
		"tenants/manager.yaml":            manifests.Manager,
	} {
		have := must.Get[[]byte](t)(os.ReadFile(file))
		o := manifests.Options{Cluster: "acme"}
		if folder, _ := filepath.Split(file); folder == servicesFolder || folder == balancerFolder {
			o.Config = parseFile(t, folder+"herald.yaml", "worker")
		}
		want := must.Get[[]byte](t)(manifests.Make(kind, o))
		if diff := cmp.Diff(string(want), string(have)); diff != "" {
			t.Errorf("%s is not current, run go generate ./manifests (-want +have):\n%s", file, diff)
		}
	}
}

// The beginnings of configurations.
const (
	bgp = `apiVersion: herald.dev/v1alpha1
kind: Speaker
nodeName: m1
vips: [{name: a, addresses: [10.99.0.10], announce: bgp, checks: [c]}]
checks: [{name: c, tcp: {address: "127.0.0.1:6443"}}]
`
	peer = "bgp: {asn: 64512, peers: [{address: 10.0.1.254, asn: 64500}]}\n"
	arp  = `apiVersion: herald.dev/v1alpha1
kind: Speaker
nodeName: m1
vips: [{name: a, addresses: [10.3.0.100], announce: arp, checks: [c], linger: 90s}]
checks: [{name: c, http: {url: "https://127.0.0.1:6443/readyz", caFile: /etc/kubernetes/pki/ca.crt, clientCertFile: /etc/herald/c.crt, clientKeyFile: /etc/herald/c.key, tokenFile: /etc/herald-tokens/t}}]
election: {members: {m1: "10.3.0.1:7946"}, keyFile: /var/lib/herald/gossip.key}
`
)

func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Parse("herald.yaml", []byte(text))
	must.Do(t, err)
	return c
}

// pod is the spec of a pod, as far as it depends on the configuration.
type pod struct {
	Spec spec `yaml:"spec"`
}

type spec struct {
	Shared     bool              `yaml:"shareProcessNamespace"`
	Name       string            `yaml:"serviceAccountName"`
	Automount  *bool             `yaml:"automountServiceAccountToken"`
	Affinity   any               `yaml:"affinity"`
	Grace      int               `yaml:"terminationGracePeriodSeconds"`
	Nodes      map[string]string `yaml:"nodeSelector"`
	Containers []container
	Volumes    []volume
}

type container struct {
	Env      []struct{ Name string }
	Security struct {
		Capabilities struct{ Add, Drop []string }
	} `yaml:"securityContext"`
	Liveness  *probe  `yaml:"livenessProbe"`
	Readiness *probe  `yaml:"readinessProbe"`
	Mounts    []mount `yaml:"volumeMounts"`
}

// paths returns the paths of the mounts.
func (c container) paths() (out []string) {
	for _, m := range c.Mounts {
		out = append(out, m.Path)
	}
	return out
}

type probe struct {
	Get struct {
		Host, Path string
		Port       int
	} `yaml:"httpGet"`
}

func (p *probe) String() string { return fmt.Sprint(p.Get.Host, " ", p.Get.Port, " ", p.Get.Path) }

type mount struct {
	Name     string
	Path     string `yaml:"mountPath"`
	ReadOnly bool   `yaml:"readOnly"`
}

type volume struct {
	Name string
	Host struct{ Path, Type string } `yaml:"hostPath"`
}

func staticPod(t *testing.T, o manifests.Options) spec {
	t.Helper()
	out := must.Get[[]byte](t)(manifests.Make(manifests.StaticPod, o))
	var p pod
	must.Do(t, yaml.Unmarshal(out, &p))
	if len(p.Spec.Containers) != 1 {
		t.Fatalf("%d containers:\n%s", len(p.Spec.Containers), out)
	}
	return p.Spec
}

// TestTun checks that Herald can make a link for routes in the kernel where it needs one, and nowhere else.
func TestTun(t *testing.T) {
	const kernel = `apiVersion: herald.dev/v1alpha1
kind: Speaker
nodeName: m1
vips: [{name: web, addresses: [10.99.0.10], announce: kernel, checks: [web]}]
checks: [{name: web, tcp: {address: "127.0.0.1:80"}}]
`
	for config, want := range map[string]bool{kernel: true, arp: false} {
		o := manifests.Options{Config: parse(t, config)}
		pod := staticPod(t, o)
		mounted := slices.ContainsFunc(pod.Volumes, func(v volume) bool { return v.Host.Path == "/dev/net/tun" && v.Host.Type == "CharDevice" }) &&
			slices.ContainsFunc(pod.Containers[0].Mounts, func(m mount) bool { return m.Path == "/dev/net/tun" && !m.ReadOnly })
		if mounted != want || pod.Shared != want {
			t.Errorf("the pod has the device: %t, and another first process: %t; want %t", mounted, pod.Shared, want)
		}
		unit := must.Get[[]byte](t)(manifests.Make(manifests.Systemd, o))
		if strings.Contains(string(unit), "DeviceAllow=/dev/net/tun rw\n") != want || strings.Contains(string(unit), "PrivateDevices=yes\n") == want {
			t.Errorf("the unit has the device: %t, want %t:\n%s", !want, want, unit)
		}
	}
}

// TestCapabilities checks that each configuration gets exactly the capabilities that it needs.
func TestCapabilities(t *testing.T) {
	for _, test := range []struct{ name, config, want string }{
		{"BGP", bgp + peer, "NET_ADMIN"},
		{"listening", bgp + strings.Replace(peer, "peers", "listen: {}, peers", 1), "NET_ADMIN NET_BIND_SERVICE"},
		{"listening on a high port", bgp + strings.Replace(peer, "peers", "listen: {port: 1790}, peers", 1), "NET_ADMIN"},
		{"metrics on a low port", bgp + peer + `metrics: {listen: ":80"}`, "NET_ADMIN NET_BIND_SERVICE"},
		{"unnumbered", bgp + strings.Replace(peer, "address: 10.0.1.254", "interface: eth0", 1), "NET_ADMIN NET_RAW"},
		{"ARP", arp, "NET_ADMIN NET_RAW"},
		{"command", strings.Replace(bgp+peer, `tcp: {address: "127.0.0.1:6443"}`, "exec: {command: [/usr/local/bin/check]}", 1), "NET_ADMIN SETGID SETUID"},
		{"ping", strings.Replace(bgp+peer, `tcp: {address: "127.0.0.1:6443"}`, "icmp: {address: 10.0.1.254}", 1), "NET_ADMIN NET_RAW"},
		{"real time", arp + "realtime: true", "IPC_LOCK NET_ADMIN NET_RAW SYS_NICE"},
		{"balancer in the kernel", balances + local + "}]", "NET_ADMIN"},
		{"proxy", balances + local + ", mode: proxy}]", "NET_ADMIN NET_BIND_SERVICE"},
		{"proxy at a high port", balances + strings.Replace(local, ":443", ":9443", 1) + ", mode: proxy}]", "NET_ADMIN"},
		{"proxy at a VIP", bgp + peer + balances[strings.Index(balances, "election:"):] + strings.Replace(local, `{address: "127.0.0.1:443"}`, "{vip: a, port: 443}", 1) + ", mode: proxy}]", "NET_ADMIN NET_BIND_SERVICE"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := manifests.Options{Config: parse(t, test.config)}
			c := staticPod(t, o).Containers[0].Security.Capabilities
			if got := strings.Join(c.Add, " "); got != test.want || !slices.Equal(c.Drop, []string{"ALL"}) {
				t.Errorf("the pod drops %s and has %s, want ALL and %s", c.Drop, got, test.want)
			}
			unit := must.Get[[]byte](t)(manifests.Make(manifests.Systemd, o))
			want := "\nCapabilityBoundingSet=CAP_" + strings.ReplaceAll(test.want, " ", " CAP_") + "\n"
			if !strings.Contains(string(unit), want) {
				t.Errorf("the unit has no line %q:\n%s", want, unit)
			}
		})
	}
}

// TestFiles checks that a pod gets every file of the configuration, read-only,
// the folder of the socket, and nothing else.
func TestFiles(t *testing.T) {
	text := arp + strings.Replace(peer, "asn: 64500", "asn: 64500, passwordFile: /etc/herald/password", 1) + "admin: {socket: /var/run/speaker/socket}\n"
	p := staticPod(t, manifests.Options{Config: parse(t, text)})
	var got []string
	for i, m := range p.Containers[0].Mounts {
		v := p.Volumes[i]
		if v.Name != m.Name || v.Host.Path != m.Path {
			t.Errorf("volume %+v is mounted as %+v", v, m)
		}
		got = append(got, fmt.Sprint(v.Host.Type, " ", m.Path, " ", m.ReadOnly))
	}
	if diff := cmp.Diff([]string{
		"Directory /etc/herald true",
		"File /etc/herald-tokens/t true",
		"File /etc/kubernetes/pki/ca.crt true",
		"File /var/lib/herald/gossip.key true",
		"DirectoryOrCreate /var/run/speaker false",
		"DirectoryOrCreate /var/lib/herald false",
	}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if p.Grace != 110 {
		t.Errorf("the pod has %d s to end, want 110 for a linger of 90 s", p.Grace)
	}
}

// TestFilesByDetours checks that a path is mounted in its clean form: the kubelet
// refuses paths with "..".
func TestFilesByDetours(t *testing.T) {
	text := strings.NewReplacer("/etc/herald/c.crt", "/etc/herald/../pki//c.crt", "/etc/herald/c.key", "/etc/./herald/c.key").Replace(arp)
	p := staticPod(t, manifests.Options{Config: parse(t, text)})
	want := []string{"/etc/herald", "/etc/herald-tokens/t", "/etc/kubernetes/pki/ca.crt", "/etc/pki/c.crt", "/var/lib/herald/gossip.key", "/run/herald", "/var/lib/herald"}
	if diff := cmp.Diff(want, p.Containers[0].paths()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestCommand checks that a pod gets the program of a check, and a unit the calls that make it another user's.
func TestCommand(t *testing.T) {
	with := parse(t, strings.Replace(bgp+peer, `tcp: {address: "127.0.0.1:6443"}`, "exec: {command: [/usr/local/bin/check, --fast]}", 1))
	mounts := staticPod(t, manifests.Options{Config: with}).Containers[0].Mounts
	if !slices.ContainsFunc(mounts, func(m mount) bool { return m.Path == "/usr/local/bin/check" && m.ReadOnly }) {
		t.Errorf("the program is not among %v", mounts)
	}
	for c, want := range map[*config.Config]bool{with: true, parse(t, bgp+peer): false} {
		unit := must.Get[[]byte](t)(manifests.Make(manifests.Systemd, manifests.Options{Config: c}))
		if got := strings.Contains(string(unit), "\nSystemCallFilter=@setuid\n"); got != want {
			t.Errorf("setuid is let through: %v, want %v:\n%s", got, want, unit)
		}
	}
}

// TestSocketFolder checks that the unit makes the folder of the socket, which has
// to be there again after each boot.
func TestSocketFolder(t *testing.T) {
	for socket, want := range map[string]string{
		"/run/herald/herald.sock":     "RuntimeDirectory=herald",
		"/var/run/herald/herald.sock": "RuntimeDirectory=herald",
		"/opt/herald/herald.sock":     "ReadWritePaths=/opt/herald",
	} {
		unit := must.Get[[]byte](t)(manifests.Make(manifests.Systemd, manifests.Options{Config: parse(t, bgp+peer+fmt.Sprintf("admin: {socket: %s}", socket))}))
		if !strings.Contains(string(unit), "\n"+want+"\n") {
			t.Errorf("with the socket %s the unit has no line %q:\n%s", socket, want, unit)
		}
	}
}

func TestProbes(t *testing.T) {
	for _, test := range []struct{ listen, want string }{
		{"127.0.0.1:9474", "127.0.0.1 9474"},
		{":9474", "127.0.0.1 9474"},
		{"0.0.0.0:9475", "127.0.0.1 9475"},
		{"[::]:9474", "127.0.0.1 9474"},
		{"localhost:9474", "127.0.0.1 9474"},
		{"10.0.1.1:9474", "10.0.1.1 9474"},
		{"[::1]:9474", "::1 9474"},
	} {
		t.Run(test.listen, func(t *testing.T) {
			c := staticPod(t, manifests.Options{Config: parse(t, bgp+peer+fmt.Sprintf("metrics: {listen: %q}", test.listen))}).Containers[0]
			got := []string{c.Liveness.String(), c.Readiness.String()}
			if diff := cmp.Diff([]string{test.want + " /healthz", test.want + " /readyz"}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	c := staticPod(t, manifests.Options{Config: parse(t, bgp+peer+`metrics: {listen: ""}`)}).Containers[0]
	if c.Liveness != nil || c.Readiness != nil {
		t.Errorf("without metrics there are the probes %v and %v", c.Liveness, c.Readiness)
	}
}

// TestRefused checks what cannot be put into a manifest.
func TestRefused(t *testing.T) {
	for _, test := range []struct {
		name   string
		config string
		kind   manifests.Kind
		o      manifests.Options
		want   string
	}{
		{name: "kind", kind: "deployment", want: `there is no manifest of kind "deployment", only static-pod, daemonset, systemd, agent and manager`},
		{name: "image", o: manifests.Options{Image: "herald: dev"}, want: `the image is "herald: dev", which a manifest cannot name`},
		{name: "binary", kind: manifests.Systemd, o: manifests.Options{Binary: "herald"}, want: `the path of the binary is "herald": want an absolute path of letters, digits and . _ - / @ +`},
		{name: "path", o: manifests.Options{File: "herald.yaml"}, want: `the path of the configuration is "herald.yaml": want an absolute path of letters, digits and . _ - / @ +`},
		{name: "shared folder", o: manifests.Options{File: "/etc/herald.yaml"}, want: "the configuration is in /etc, which other programs share: put it into a folder of its own below"},
		{name: "folder of kubeadm", o: manifests.Options{File: "/etc/kubernetes/herald.yaml"}, want: "the configuration is in /etc/kubernetes, which other programs share: put it into a folder of its own below"},
		{name: "state folder", o: manifests.Options{File: "/var/lib/herald/herald.yaml"}, want: "the configuration is in /var/lib/herald, where Herald keeps its state: put it into another folder"},
		{name: "socket", config: bgp + peer + "admin: {socket: /run/herald.sock}", want: "admin.socket is in /run, which other programs share: put it into a folder of its own below"},
		{name: "socket in the other run", config: bgp + peer + "admin: {socket: /var/run/herald.sock}", want: "admin.socket is in /var/run, which other programs share: put it into a folder of its own below"},
		{name: "socket among the files", config: bgp + peer + "admin: {socket: /etc/herald/herald.sock}", want: "admin.socket is in /etc/herald, the folder of the configuration, which is read-only: put it into another folder, such as /run/herald"},
		{name: "socket among the files, as a service", kind: manifests.Systemd, config: bgp + peer + "admin: {socket: /etc/herald//herald.sock}", want: "admin.socket is in /etc/herald, the folder of the configuration, which is read-only: put it into another folder, such as /run/herald"},
		{name: "file", config: strings.Replace(arp, "/etc/herald/c.crt", "/etc/herald/%i", 1), want: `a file of the configuration is "/etc/herald/%i": want an absolute path of letters, digits and . _ - / @ +`},
		{name: "folder in a Secret", kind: manifests.DaemonSet, config: strings.Replace(arp, "/etc/herald/c.crt", "/etc/herald/pki/c.crt", 1), want: "/etc/herald/pki/c.crt is in a folder below /etc/herald, which comes from a ConfigMap and a Secret without folders: put it into /etc/herald itself"},
		{name: "flag", config: strings.Replace(bgp+peer, `tcp: {address: "127.0.0.1:6443"}`, "file: {path: /run/flag}", 1), want: "the check c needs /run/flag, which is not visible in a pod: put it into /etc/herald"},
		{name: "port", config: bgp + peer + `metrics: {listen: ":0"}`, want: `metrics.listen is ":0": a probe needs to know the port, want one of 1 to 65535`},
		{name: "zone", config: bgp + peer + `metrics: {listen: "[fe80::1%eth0]:9474"}`, want: `metrics.listen is "[fe80::1%eth0]:9474": a probe needs an address without a zone`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.kind == "" {
				test.kind = manifests.StaticPod
			}
			if test.config != "" {
				test.o.Config = parse(t, test.config)
			}
			if out, err := manifests.Make(test.kind, test.o); err == nil || err.Error() != test.want {
				t.Errorf("got %v, want %s\n%s", err, test.want, out)
			}
		})
	}
}
