package manifests_test

import (
	"os"
	"os/exec"
	"path"
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

// kubeadmControlPlane has the fields that the tests here read.
type kubeadmControlPlane struct {
	Spec struct {
		Kubeadm struct {
			Files    []masterFile
			Commands []string `yaml:"preKubeadmCommands"`
		} `yaml:"kubeadmConfigSpec"`
	}
}

// masterFile is a file on a master.
type masterFile struct {
	Path, Owner, Permissions, Content string
	From                              struct {
		Secret struct{ Name, Key string }
	} `yaml:"contentFrom"`
}

// readControlPlane reads a file of manifests/cluster-api, its words in @ replaced.
func readControlPlane(t *testing.T, name string) kubeadmControlPlane {
	t.Helper()
	text := must.Get[[]byte](t)(os.ReadFile("cluster-api/" + name))
	words := strings.NewReplacer("@VIP@", "10.3.0.100", "@HERALD_IMAGE@", manifests.DefaultImage, "@KUBELET_ARGS@", "[]")
	var k kubeadmControlPlane
	must.Do(t, yaml.Unmarshal([]byte(words.Replace(string(text))), &k))
	return k
}

// file is the one with this path.
func (k kubeadmControlPlane) file(t *testing.T, path string) masterFile {
	t.Helper()
	files := k.Spec.Kubeadm.Files
	i := slices.IndexFunc(files, func(f masterFile) bool { return f.Path == path })
	if i < 0 {
		t.Fatalf("nothing writes %s", path)
	}
	return files[i]
}

// settings are the lines of a file of sysctls that are no comments.
func settings(text string) []string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, "#") })
}

// TestClusterAPIFiles checks what Cluster API writes on a master: the pod that Make makes, a
// configuration that it fits, secrets from a Secret, and the sysctls of cloud-init.
func TestClusterAPIFiles(t *testing.T) {
	want := must.Get[[]byte](t)(manifests.Make(manifests.StaticPod, manifests.Options{}))
	for _, test := range []struct{ name, settingsOf, secret string }{
		{"bgp.yaml", "master-bgp.yaml", "/etc/herald/bgp-password"},
		{name: "flat.yaml", secret: "/etc/herald/gossip.key"},
	} {
		t.Run(test.name, func(t *testing.T) {
			k := readControlPlane(t, test.name)
			if diff := cmp.Diff(string(want), k.file(t, "/etc/kubernetes/manifests/herald.yaml").Content); diff != "" {
				t.Errorf("the pod is not static-pod.yaml: copy it (-want +have):\n%s", diff)
			}
			c, err := config.Parse("herald.yaml", []byte(k.file(t, manifests.DefaultFile).Content), config.Hostname("m1"))
			must.Do(t, err)
			podFits(t, c)

			if diff := cmp.Diff([]string{test.secret}, secretsOf(c)); diff != "" {
				t.Errorf("secrets (-want +have):\n%s", diff)
			}
			secret := masterFile{Path: test.secret, Owner: "root:root", Permissions: "0600"}
			secret.From.Secret.Name, secret.From.Secret.Key = "prod-herald", path.Base(test.secret)
			if diff := cmp.Diff(secret, k.file(t, test.secret)); diff != "" {
				t.Errorf("(-want +have):\n%s", diff)
			}

			if test.settingsOf != "" {
				const sysctls = "/etc/sysctl.d/90-herald.conf"
				if diff := cmp.Diff(settings(userDataFile(t, test.settingsOf, sysctls)), settings(k.file(t, sysctls).Content)); diff != "" {
					t.Errorf("the settings are not those of %s (-want +have):\n%s", test.settingsOf, diff)
				}
				if !slices.Contains(k.Spec.Kubeadm.Commands, "sysctl -p "+sysctls) {
					t.Errorf("nothing loads %s", sysctls)
				}
			}
			for _, f := range k.Spec.Kubeadm.Files {
				for _, jinja := range []string{"{{", "{%", "{#"} {
					if strings.Contains(f.Content, jinja) {
						t.Errorf("%s has %s, which cloud-init takes for its own", f.Path, jinja)
					}
				}
			}
		})
	}
}

// podFits checks that the pod for any configuration fits c.
func podFits(t *testing.T, c *config.Config) {
	t.Helper()
	takes, present := staticPod(t, manifests.Options{Config: c}).Containers[0], staticPod(t, manifests.Options{}).Containers[0]
	for _, m := range takes.Mounts {
		if !slices.Contains(present.Mounts, m) {
			t.Errorf("the pod has no %+v", m)
		}
	}
	for _, capability := range takes.Security.Capabilities.Add {
		if !slices.Contains(present.Security.Capabilities.Add, capability) {
			t.Errorf("the pod has no %s", capability)
		}
	}
}

// secretsOf are the files of passwords and keys that a configuration names.
func secretsOf(c *config.Config) (files []string) {
	if c.BGP != nil {
		for _, peer := range c.BGP.Peers {
			files = append(files, peer.PasswordFile)
		}
	}
	if c.Election != nil {
		files = append(files, c.Election.KeyFile)
	}
	return files
}

// userDataFile returns the content that a file of manifests/cloud-init writes to a path.
func userDataFile(t *testing.T, name, path string) string {
	t.Helper()
	text := must.Get[[]byte](t)(os.ReadFile("cloud-init/" + name))
	var u struct {
		Files []struct{ Path, Content string } `yaml:"write_files"`
	}
	must.Do(t, yaml.Unmarshal(text, &u))
	for _, f := range u.Files {
		if f.Path == path {
			return f.Content
		}
	}
	t.Fatalf("%s writes no %s", name, path)
	return ""
}

// TestClusterAPIBootstrap runs the last command of a flat layer 2 with Cluster API's file for kubeadm init, and
// with that for kubeadm join. Only the first master begins a cluster.
func TestClusterAPIBootstrap(t *testing.T) {
	k := readControlPlane(t, "flat.yaml")
	commands := k.Spec.Kubeadm.Commands
	command := commands[len(commands)-1]
	for kubeadm, want := range map[string]bool{"kubeadm.yaml": true, "kubeadm-join-config.yaml": false} {
		t.Run(kubeadm, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "herald.yaml")
			for path, content := range map[string]string{file: k.file(t, manifests.DefaultFile).Content, filepath.Join(dir, kubeadm): ""} {
				must.Do(t, os.WriteFile(path, []byte(content), 0o600))
			}
			here := strings.NewReplacer("/etc/herald/", dir+"/", "/run/kubeadm/", dir+"/")
			if out, err := exec.CommandContext(t.Context(), "sh", "-c", here.Replace(command)).CombinedOutput(); err != nil || len(out) > 0 {
				t.Fatalf("%v %s", err, out)
			}
			if c := parseFile(t, file, "m1"); c.Election.Bootstrap != want || len(c.Election.Join) < 4 {
				t.Errorf("bootstrap is %v, want %v; join is %v, want an address for each of four machines", c.Election.Bootstrap, want, c.Election.Join)
			}
		})
	}
}

// TestClusterAPIEndpoint checks that the clusters of all providers have Herald's VIP for
// their endpoint, and that OpenStack lets the masters use it.
func TestClusterAPIEndpoint(t *testing.T) {
	for file, lines := range map[string][]string{
		"bgp.yaml":   {`addresses: ["@VIP@"]`},
		"flat.yaml":  {`addresses: ["@VIP@"]`},
		"capv.yaml":  {`controlPlaneEndpoint: {host: "@VIP@", port: 6443}`},
		"capm3.yaml": {`controlPlaneEndpoint: {host: "@VIP@", port: 6443}`},
		"capo.yaml":  {`apiServerFixedIP: "@VIP@"`, `- ipAddress: "@VIP@"`},
	} {
		text := must.Get[[]byte](t)(os.ReadFile("cluster-api/" + file))
		for _, line := range lines {
			if !strings.Contains(string(text), " "+line+"\n") {
				t.Errorf("%s has no line %q", file, line)
			}
		}
	}
}
