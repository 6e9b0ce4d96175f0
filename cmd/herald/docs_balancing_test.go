package main

import (
	"net"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/pelletier/go-toml/v2"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/testenv/must"
)

// The two guides in the page on balancing.
const (
	balancingKubeadm  = "../../docs/balancing.md#A control plane behind 127.0.0.1:9443"
	balancingRegistry = "../../docs/balancing.md#A registry behind 127.0.0.1:5000"
)

// guideBalancer is the balancer of a name in the first configuration of a page, and its
// address, which every configuration there has to share.
func guideBalancer(t *testing.T, page, name string) (balancer.Config, string) {
	t.Helper()
	var found []balancer.Config
	for _, block := range configurations(t, page) {
		c, err := config.Parse(page, []byte(block), config.Hostname("m1"))
		must.Do(t, err)
		i := slices.IndexFunc(c.Balancers, func(b balancer.Config) bool { return b.Name == name })
		if i < 0 {
			t.Fatalf("%s: no balancer is called %s in\n%s", page, name, block)
		}
		found = append(found, c.Balancers[i])
	}
	if len(found) == 0 {
		t.Fatalf("%s has no configuration", page)
	}
	for _, other := range found {
		if other.Listen[0] != found[0].Listen[0] {
			t.Errorf("%s has %s listen at %v and at %v", page, name, found[0].Listen[0].Address, other.Listen[0].Address)
		}
	}
	return found[0], found[0].Listen[0].Address.String()
}

// TestKubeadmBehindBalancer checks that the guide's cluster has the balancer as its endpoint,
// with a certificate for it, and that nodes join by it.
func TestKubeadmBehindBalancer(t *testing.T) {
	_, at := guideBalancer(t, balancingKubeadm, "kubernetes")
	if got := endpoint(t, balancingKubeadm); got != at {
		t.Errorf("the endpoint is %s, the balancer is at %s", got, at)
	}
	joins := regexp.MustCompile(`kubeadm join (\S+)`).FindAllStringSubmatch(strings.Join(blocks(t, balancingKubeadm, "sh"), ""), -1)
	if len(joins) != 2 {
		t.Errorf("nodes join by %q, want masters and workers", joins)
	}
	for _, join := range joins {
		if join[1] != at {
			t.Errorf("nodes join by %s, the balancer is at %s", join[1], at)
		}
	}
}

// TestRegistryGuide checks that registries listen where the balancer sends connections, and
// that containerd asks the balancer.
func TestRegistryGuide(t *testing.T) {
	b, at := guideBalancer(t, balancingRegistry, "images")
	var registry struct {
		HTTP struct{ Addr string }
	}
	must.Do(t, yaml.Unmarshal([]byte(blocks(t, balancingRegistry, "yaml")[0]), &registry))
	_, port, err := net.SplitHostPort(registry.HTTP.Addr)
	if want := net.JoinHostPort("0.0.0.0", port); err != nil || registry.HTTP.Addr != want || port != "5001" || b.Backends.Members.Port != 5001 {
		t.Errorf("registries listen at %s, connections go to port %d: %v", registry.HTTP.Addr, b.Backends.Members.Port, err)
	}

	var hosts, configs int
	for _, block := range blocks(t, balancingRegistry, "toml") {
		var file struct {
			Version int
			Plugins map[string]struct {
				Registry struct {
					ConfigPath string `toml:"config_path"`
				}
			}
			Server string
			Host   map[string]struct{ Capabilities []string }
		}
		decoder := toml.NewDecoder(strings.NewReader(block))
		if err := decoder.DisallowUnknownFields().Decode(&file); err != nil {
			t.Errorf("%v in\n%s", err, block)
			continue
		}
		if file.Version > 0 {
			configs++
			plugin := map[int]string{2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.images"}[file.Version]
			if got := file.Plugins[plugin].Registry.ConfigPath; len(file.Plugins) != 1 || got != "/etc/containerd/certs.d" {
				t.Errorf("containerd would look for registries in %q:\n%s", got, block)
			}
			continue
		}
		hosts++
		host, ok := file.Host["http://"+at]
		if !ok || len(file.Host) != 1 || !slices.Contains(host.Capabilities, "pull") || !slices.Contains(host.Capabilities, "resolve") {
			t.Errorf("containerd would not pull from %s:\n%s", at, block)
		}
	}
	if configs != 2 || hosts != 2 {
		t.Errorf("there are %d config.toml and %d hosts.toml, want two of each", configs, hosts)
	}
	if name := path.Join("/etc/containerd/certs.d", at, "hosts.toml"); !strings.Contains(section(t, balancingRegistry), name) {
		t.Errorf("the guide does not name %s", name)
	}
}
