//go:build e2e

package install

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/manifests"
	"github.com/herald-vip/herald/testenv/e2e/site"
)

// twice runs a command two times with the host's /etc and /usr/local/bin under a layer
// in memory, and copies the written files to a folder.
const twice = `
memory=$1 written=$2
shift 2
mount -t tmpfs tmpfs "$memory"
for dir in /etc /usr/local/bin; do
	mkdir -p "$memory/upper$dir" "$memory/work$dir"
	mount -t overlay overlay -o "lowerdir=$dir,upperdir=$memory/upper$dir,workdir=$memory/work$dir" "$dir"
done
export HOME="$memory" LC_ALL=C.UTF-8 ANSIBLE_NOCOLOR=1
"$@"
"$@"
cp "$memory/upper/etc/herald/herald.yaml" "$memory/before"
"$@" --extra-vars herald_config=nonsense && exit 1
cmp "$memory/before" "$memory/upper/etc/herald/herald.yaml"
cp -R --preserve=mode "$memory/upper/." "$written"
`

// TestKubesprayRole runs the role for Kubespray by Ansible with the variables beside
// it. It writes just the program, the configuration, its secrets and herald's pod, and
// the second time nothing. An invalid configuration fails the role, and the file
// stays.
func TestKubesprayRole(t *testing.T) {
	const source = "../../../manifests/kubespray/"
	playbook, err := filepath.Abs(source + "herald.yml")
	site.Must(t, err)
	herald, err := filepath.Abs(site.Part(t, "HERALD"))
	site.Must(t, err)
	inventory := t.TempDir()
	site.Must(t, os.CopyFS(inventory, os.DirFS(source+"inventory")))
	hosts := filepath.Join(inventory, "hosts.ini")
	site.Must(t, os.WriteFile(hosts, []byte("[kube_control_plane]\nm1 ansible_connection=local ansible_python_interpreter=/usr/bin/python3\n"), 0o644))
	own, err := json.Marshal(map[string]any{
		"ansible_become": false, // it is root
		"herald_binary":  herald,
		"herald_secrets": map[string]string{"bgp-password": "secret"},
	})
	site.Must(t, err)

	written := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-euc", twice, "sh", t.TempDir(), written,
		"ansible-playbook", "--inventory", hosts, "--extra-vars", string(own), playbook).CombinedOutput()
	if err != nil {
		t.Fatalf("ansible-playbook: %v\n%s", err, out)
	}
	changed := regexp.MustCompile(`(?m)^m1 .* changed=(\d+) `).FindAllSubmatch(out, -1)
	if len(changed) != 3 || string(changed[0][1]) == "0" || string(changed[1][1]) != "0" {
		t.Errorf("want three runs, and changes only by the first:\n%s", out)
	}

	var variables struct {
		API    struct{ Address string } `yaml:"loadbalancer_apiserver"`
		Image  string                   `yaml:"herald_image"`
		Config string                   `yaml:"herald_config"`
	}
	site.Must(t, yaml.Unmarshal([]byte(site.ReadFile(t, source+"inventory/group_vars/all/herald.yml")), &variables))
	text := strings.NewReplacer("{{ inventory_hostname }}", "m1", "{{ loadbalancer_apiserver.address }}", variables.API.Address).Replace(variables.Config)
	c, err := config.Parse("herald.yaml", []byte(text))
	site.Must(t, err)
	pod, err := manifests.Make(manifests.StaticPod, manifests.Options{Config: c, Image: variables.Image})
	site.Must(t, err)
	binary, program := site.ReadFile(t, herald), "herald itself"
	want := map[string]string{
		"/etc/herald/bgp-password":              "600 secret",
		"/etc/herald/herald.yaml":               "644 " + text,
		"/etc/kubernetes/manifests/herald.yaml": "600 " + string(pod),
		"/usr/local/bin/herald":                 "755 " + program,
	}
	got := map[string]string{}
	site.Must(t, filepath.WalkDir(written, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		content := site.ReadFile(t, path)
		if content == binary {
			content = program
		}
		got[strings.TrimPrefix(path, written)] = fmt.Sprintf("%o %s", info.Mode().Perm(), content)
		return nil
	}))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +written):\n%s", diff)
	}
}
