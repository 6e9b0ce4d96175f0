package facts

import (
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/testenv/must"
)

// tree is a root file system with these files and links.
func tree(files map[string]string, links map[string]string) fstest.MapFS {
	out := fstest.MapFS{}
	for name, data := range files {
		out[name] = &fstest.MapFile{Data: []byte(data)}
	}
	for name, target := range links {
		out[name] = &fstest.MapFile{Mode: fs.ModeSymlink, Data: []byte(target)}
	}
	return out
}

func compare() cmp.Option {
	return cmp.Options{
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
		cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
	}
}

func TestPrograms(t *testing.T) {
	root := tree(map[string]string{
		"proc/1/comm": "systemd\n", "proc/1/cmdline": "/sbin/init\x00",
		"proc/20/comm": "keepalived\n", "proc/20/cmdline": "/usr/sbin/keepalived\x00-f\x00/etc/k.conf\x00",
		"proc/20/root/etc/k.conf": "virtual_ipaddress {\n 10.0.1.100/24 dev eth0\n}",
		"proc/21/comm":            "keepalived\n", "proc/21/cmdline": "/usr/sbin/keepalived\x00-f\x00/etc/k.conf\x00", // its child
		"proc/30/comm": "keepalived\n", "proc/30/cmdline": "keepalived\x00", // of another container
		"proc/40/comm": "kube-vip\n", "proc/40/cmdline": "/kube-vip\x00manager\x00", "proc/40/environ": "PATH=/bin\x00address=10.0.1.100\x00",
		"proc/50/comm": "speaker\n", "proc/50/cmdline": "/speaker\x00--port=7472\x00", "proc/50/environ": "METALLB_NODE_NAME=m1\x00",
		"proc/60/comm": "speaker\n", "proc/60/cmdline": "/opt/music/speaker\x00",
		"proc/70/comm": "herald\n", "proc/70/cmdline": "herald\x00run\x00",
		"proc/80/comm": "herald\n", "proc/80/cmdline": "herald\x00doctor\x00", // this one
	}, map[string]string{
		"proc/self/ns/net": "net:[1]", "proc/20/ns/net": "net:[1]", "proc/30/ns/net": "net:[2]", "proc/40/ns/net": "net:[1]",
	})
	want := []Program{
		{PID: 20, Name: "keepalived", Args: []string{"/usr/sbin/keepalived", "-f", "/etc/k.conf"}, Mentions: []netip.Addr{vip}},
		{PID: 40, Name: "kube-vip", Args: []string{"/kube-vip", "manager"}, Mentions: []netip.Addr{vip}},
		{PID: 50, Name: "speaker", Args: []string{"/speaker", "--port=7472"}},
		{PID: 70, Name: "herald", Args: []string{"herald", "run"}},
	}
	if diff := cmp.Diff(want, programs(root, parsed(t, flatFile), 80), compare()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Opening a pipe would block until a writer opens it.
func TestReadsFilesOnly(t *testing.T) {
	dir := t.TempDir()
	must.Do(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	must.Do(t, os.WriteFile(filepath.Join(dir, "file"), []byte("text"), 0o600))
	for name, want := range map[string]string{"file": "text", "pipe": "", "none": "", ".": ""} {
		if got := read(os.DirFS(dir), name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestCapabilities(t *testing.T) {
	status := must.Get[[]byte](t)(os.ReadFile("/proc/self/status"))
	for _, pid := range []int{0, os.Getpid()} {
		got, err := capabilities(pid)
		if err != nil || !strings.Contains(string(status), fmt.Sprintf("CapEff:\t%016x\n", got)) {
			t.Errorf("process %d has %x, %v; the kernel reports\n%s", pid, got, err, status)
		}
	}
	if got, err := capabilities(1 << 30); err == nil {
		t.Errorf("a missing process has %x", got)
	}
}

func TestKeepalivedFile(t *testing.T) {
	for want, args := range map[string][]string{
		"/etc/keepalived/keepalived.conf": {"keepalived", "-n"},
		"/a.conf":                         {"keepalived", "-f", "/a.conf"},
		"/b.conf":                         {"keepalived", "--use-file=/b.conf"},
		"/c.conf":                         {"keepalived", "--use-file", "/x/../c.conf"},
	} {
		if got := keepalivedFile(args); got != want {
			t.Errorf("%q: %s, want %s", args, got, want)
		}
	}
}

func TestManifests(t *testing.T) {
	root := tree(map[string]string{
		"etc/kubernetes/manifests/kube-apiserver.yaml": "spec:\n  containers:\n  - image: registry.k8s.io/kube-apiserver:v1.34.0\n",
		"etc/kubernetes/manifests/kube-vip.yaml":       "spec:\n  containers:\n  - env:\n    - name: address\n      value: 10.0.1.100\n    image: ghcr.io/kube-vip/kube-vip:v1.0.0\n",
		"etc/kubernetes/manifests/kube-vip.yaml.bak":   "image: ghcr.io/kube-vip/kube-vip:v1.0.0\n",
		"etc/kubernetes/manifests/lb.json":             `{"spec": {"containers": [{` + "\n" + `"image": "osixia/keepalived:2"` + "\n}]}}",
	}, nil)
	want := []Manifest{
		{File: "/etc/kubernetes/manifests/kube-vip.yaml", Image: "ghcr.io/kube-vip/kube-vip:v1.0.0", Mentions: []netip.Addr{vip}},
		{File: "/etc/kubernetes/manifests/lb.json", Image: "osixia/keepalived:2"},
	}
	if diff := cmp.Diff(want, manifests(root, parsed(t, flatFile)), compare()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMentions(t *testing.T) {
	c := parsed(t, routedFile)
	for text, want := range map[string]int{
		"10.99.0.10":                         1,
		"10.99.0.10/32, fd00:99::10/128":     2,
		"VIP=FD00:99:0::10":                  1,
		"10.99.0.100 or 110.99.0.10":         0,
		"see 10.99.0.10.":                    1,
		"https://10.99.0.10:6443/":           1,
		"[fd00:99::10]:6443":                 1,
		"":                                   0,
		"address\x0010.99.0.10\x00interface": 1,
	} {
		if got := mentions(c, text); len(got) != want {
			t.Errorf("%q mentions %v, want %d", text, got, want)
		}
	}
}

func FuzzMentions(f *testing.F) {
	f.Add("virtual_ipaddress { 10.99.0.10/32 }")
	f.Add("image: kube-vip")
	c := parsed(f, routedFile)
	f.Fuzz(func(t *testing.T, text string) {
		if got := mentions(c, text); len(got) > 2 {
			t.Errorf("%v", got)
		}
		if image := image(text); strings.ContainsAny(image, "\n\"") {
			t.Errorf("%q is no image", image)
		}
	})
}
