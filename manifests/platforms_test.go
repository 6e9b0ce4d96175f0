package manifests_test

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/manifests"
	"github.com/herald-vip/herald/testenv/must"
)

// k0sctl has the fields of a k0sctl configuration that the tests read.
type k0sctl struct {
	Spec struct {
		Hosts []k0sHost
		K0s   struct {
			Config struct {
				Spec struct {
					API struct {
						External string   `yaml:"externalAddress"`
						Names    []string `yaml:"sans"`
					} `yaml:"api"`
				}
			}
		} `yaml:"k0s"`
	}
}

type k0sHost struct {
	Role    string
	SSH     struct{ Address string } `yaml:"ssh"`
	Private string                   `yaml:"privateAddress"`
	Files   []struct{ Name, Src, Dst, Data string }
	Hooks   map[string]map[string][]string
}

// data is the content of the file that the host gets at this path.
func (h k0sHost) data(path string) string {
	for _, f := range h.Files {
		if f.Dst == path {
			return f.Data
		}
	}
	return ""
}

// TestK0s checks that the controllers get a unit that fits their configuration, which has the
// VIP that k0s gives its nodes, and the certificate that the check shows.
func TestK0s(t *testing.T) {
	const file = "k0s/k0sctl.yaml"
	text := must.Get[[]byte](t)(os.ReadFile(file))
	// k0sctl puts variables in, and $ in the place of $$.
	parts := strings.Split(string(text), "$$")
	if slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(part, "$") }) {
		t.Errorf("%s has a $ that k0sctl takes for the beginning of a variable: write $$", file)
	}
	var cluster k0sctl
	must.Do(t, yaml.Unmarshal([]byte(strings.Join(parts, "$")), &cluster))
	controllers := 0
	for _, h := range cluster.Spec.Hosts {
		if h.Role != "controller" {
			if len(h.Files) > 0 || len(h.Hooks) > 0 {
				t.Errorf("%s %s gets Herald", h.Role, h.SSH.Address)
			}
			continue
		}
		controllers++
		if h.Private == "" || h.Private != h.SSH.Address {
			t.Errorf("the controller at %s has the private address %q", h.SSH.Address, h.Private)
		}
		c, err := config.Parse(file, []byte(h.data(manifests.DefaultFile)), config.Hostname(fmt.Sprint("m", controllers)))
		must.Do(t, err)
		unit := must.Get[[]byte](t)(manifests.Make(manifests.Systemd, manifests.Options{Config: c}))
		if diff := cmp.Diff(string(unit), h.data("/etc/systemd/system/herald.service")); diff != "" {
			t.Errorf("the unit in %s is not what `herald manifest systemd` prints for its configuration, with $$ for $ (-want +have):\n%s", file, diff)
		}
		api := cluster.Spec.K0s.Config.Spec.API
		if vip := c.VIPs[0].Addresses; !slices.Equal(vip, []netip.Addr{netip.MustParseAddr(api.External)}) || !slices.Contains(api.Names, api.External) {
			t.Errorf("the VIP is %v, the API's address %s, its names %q", vip, api.External, api.Names)
		}
		const certificate = "/etc/herald/certificate"
		issue := h.data(certificate)
		for hook, commands := range map[string][]string{"install": h.Hooks["install"]["after"], "apply": h.Hooks["apply"]["before"]} {
			if !strings.Contains(strings.Join(commands, "\n"), certificate) {
				t.Errorf("the hook %s issues no certificate", hook)
			}
		}
		for _, check := range c.HTTPChecks() {
			if check.CAFile != "/var/lib/k0s/pki/ca.crt" {
				t.Errorf("%s is checked against %s", check.URL, check.CAFile)
			}
			if cert, key := check.ClientCertFile, check.ClientKeyFile; strings.Contains(check.URL, ":6443") &&
				(cert == "" || key == "" || !strings.Contains(issue, " -out "+cert) || !strings.Contains(issue, " -keyout "+key)) {
				t.Errorf("no hook makes %q and %q", cert, key)
			}
		}
	}
	if controllers != 3 {
		t.Errorf("%d controllers, want 3", controllers)
	}
}

// TestKubespray checks that the variables give a valid configuration with Kubespray's VIP, and a pod.
func TestKubespray(t *testing.T) {
	const file = "kubespray/inventory/group_vars/all/herald.yml"
	var variables struct {
		API struct {
			Address string
			Port    int
		} `yaml:"loadbalancer_apiserver"`
		Image  string `yaml:"herald_image"`
		Config string `yaml:"herald_config"`
	}
	read(t, file, &variables)
	text := strings.NewReplacer(
		"{{ inventory_hostname }}", "m1", "{{ loadbalancer_apiserver.address }}", variables.API.Address,
	).Replace(variables.Config)
	if strings.Contains(text, "{{") {
		t.Fatalf("the test does not know all variables in\n%s", text)
	}
	c := parse(t, text)
	if vip := c.VIPs[0].Addresses; !slices.Equal(vip, []netip.Addr{netip.MustParseAddr(variables.API.Address)}) {
		t.Errorf("the VIP is %v, the API's address %s", vip, variables.API.Address)
	}
	if url := c.Checks[0].HTTP.URL; !strings.Contains(url, fmt.Sprintf(":%d/", variables.API.Port)) {
		t.Errorf("%s is checked, and the API has port %d: a VIP has those of the master", url, variables.API.Port)
	}
	got := staticPod(t, manifests.Options{Config: c, Image: variables.Image}).Containers[0].paths()
	if diff := cmp.Diff([]string{"/etc/herald", "/etc/kubernetes/ssl/ca.crt", "/run/herald", "/var/lib/herald"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestTalos checks that Herald's configuration in the patch is valid, that its files are mounted into the
// service, and that the VIP is the cluster's.
func TestTalos(t *testing.T) {
	const file = "talos/patch.yaml"
	text := must.Get[[]byte](t)(os.ReadFile(file))
	type mount struct {
		Source, Destination string
		Options             []string
	}
	var service struct{ Container struct{ Mounts []mount } }
	read(t, "talos/service.yaml", &service)
	type names struct {
		Names []string `yaml:"certSANs"`
	}
	var node struct {
		Machine names
		Cluster struct {
			API names `yaml:"apiServer"`
		}
	}
	var own struct {
		Files []struct {
			Path    string `yaml:"mountPath"`
			Content string
		} `yaml:"configFiles"`
	}
	d := yaml.NewDecoder(strings.NewReader(string(text)))
	for _, document := range []any{&node, &own} {
		must.Do(t, d.Decode(document))
	}
	if len(own.Files) != 1 || own.Files[0].Path != manifests.DefaultFile {
		t.Fatalf("the files are %+v", own.Files)
	}
	c := parse(t, "nodeName: m1\n"+own.Files[0].Content)
	if vip := c.VIPs[0].Addresses[0].String(); !slices.Contains(node.Machine.Names, vip) || !slices.Contains(node.Cluster.API.Names, vip) ||
		!strings.Contains(string(text), " https://"+vip+":6443 ") {
		t.Errorf("the VIP %s is not in both certificates and the endpoint", vip)
	}
	if linger := c.VIPs[0].Linger.Seconds(); linger > 5 {
		t.Errorf("linger is %v s, and Talos waits for 10 s in all", linger)
	}
	for _, check := range c.HTTPChecks() {
		for _, name := range check.Files() {
			if name != "" && !slices.ContainsFunc(service.Container.Mounts, func(m mount) bool {
				return strings.HasPrefix(name, m.Destination+"/") && m.Source == m.Destination && slices.Contains(m.Options, "ro")
			}) {
				t.Errorf("%s is not mounted, or can be written to", name)
			}
		}
	}
}
