//go:build e2e

package install

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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
	herald := site.Get[string](t)(filepath.Abs(site.Part(t, "HERALD")))
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
	c := site.Get[*config.Config](t)(config.Parse("herald.yaml", []byte(text)))
	pod := site.Get[[]byte](t)(manifests.Make(manifests.StaticPod, manifests.Options{Config: c, Image: variables.Image}))
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

// kinds are the definitions of the kinds in manifests/cluster-api: the files of a
// module, with its checksum as in go.sum.
type kinds struct {
	sum   string
	files []string
}

// clusterAPIModules have the versions in docs/platforms/machines.md. Their code is not compiled.
var clusterAPIModules = map[string]kinds{
	"sigs.k8s.io/cluster-api@v1.14.2": {"h1:o3GFNaeNFAOEEMpDPfhCK+2CjmV6gtQ8yLEcUwCg7bA=", []string{
		"cluster.x-k8s.io_clusters.yaml",
		"controlplane.cluster.x-k8s.io_kubeadmcontrolplanes.yaml",
	}},
	"sigs.k8s.io/cluster-api-provider-vsphere@v1.16.1": {"h1:6fN9Df5EBtxzI5546L4kzevCyE/wM9qWv8ZS+iAU9f8=", []string{
		"infrastructure.cluster.x-k8s.io_vsphereclusters.yaml",
		"infrastructure.cluster.x-k8s.io_vspheremachinetemplates.yaml",
	}},
	"github.com/metal3-io/cluster-api-provider-metal3@v1.13.2": {"h1:qYIXaHZp3Tcn2Taf+LZZ7rjATyKLVjguMS39pC640pw=", []string{
		"infrastructure.cluster.x-k8s.io_metal3clusters.yaml",
		"infrastructure.cluster.x-k8s.io_metal3datatemplates.yaml",
		"infrastructure.cluster.x-k8s.io_metal3machinetemplates.yaml",
	}},
	"sigs.k8s.io/cluster-api-provider-openstack@v0.14.2": {"h1:NMgU0ngsJLYd5JB0gcIfd2Rk34be5+SjEzrv4aNMso0=", []string{
		"infrastructure.cluster.x-k8s.io_openstackclusters.yaml",
		"infrastructure.cluster.x-k8s.io_openstackmachinetemplates.yaml",
	}},
}

// definitions returns the paths of the files in a module; each module keeps them elsewhere.
func definitions(t *testing.T, module string, want kinds) (files []string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", module)
	c.Dir = t.TempDir()                         // in no module
	c.Env = append(os.Environ(), "GONOSUMDB=*") // it may not know the module; the sum is checked here
	out, err := c.Output()
	var m struct{ Dir, Sum, Error string }
	if bad := json.Unmarshal(out, &m); err != nil || bad != nil || m.Sum != want.sum {
		t.Fatalf("download %s, whose sum is %s: %v", module, want.sum, errors.Join(err, bad, errors.New(m.Sum+m.Error)))
	}
	site.Must(t, filepath.WalkDir(m.Dir, func(path string, _ fs.DirEntry, err error) error {
		if slices.Contains(want.files, filepath.Base(path)) {
			files = append(files, path)
		}
		return err
	}))
	if len(files) != len(want.files) {
		t.Fatalf("%s has %q, want one file for each of %q", module, files, want.files)
	}
	return files
}

// TestClusterAPI checks manifests/cluster-api with a kube-apiserver that knows the
// kinds of Cluster API and three providers. It fills in the placeholders as
// docs/platforms/machines.md does.
func TestClusterAPI(t *testing.T) {
	k := site.StartAPIServer(t)
	page := site.ReadFile(t, "../../../docs/platforms/machines.md")
	for module, want := range clusterAPIModules {
		if _, version, _ := strings.Cut(module, "@"); !strings.Contains(page, version) {
			t.Errorf("docs/platforms/machines.md does not name %s", module)
		}
		site.Must(t, k.API.Define(t.Context(), definitions(t, module, want)...))
	}
	rows := regexp.MustCompile("(?m)^ *\\| (CAP\\w+) \\| `(\\w+)` \\| `(\\[.*\\])` \\|$").FindAllStringSubmatch(page, -1)
	if len(rows) != 3 {
		t.Fatalf("docs/platforms/machines.md covers %d providers, want three", len(rows))
	}
	for _, row := range rows {
		words := map[string]string{
			"@VIP@":              "10.3.0.100",
			"@HERALD_IMAGE@":     "registry.example.com/herald:v0.1.0",
			"@MACHINE_TEMPLATE@": row[2],
			"@KUBELET_ARGS@":     row[3],
			"@IMAGE_URL@":        "https://images.example.com/node.qcow2",
			"@IMAGE_SHA256@":     strings.Repeat("0a", 32),
		}
		for file, field := range map[string]string{
			"bgp.yaml":  "contentFrom",
			"flat.yaml": "preKubeadmCommands",
			strings.ToLower(row[1]) + ".yaml": map[string]string{
				"CAPV": "powerOffMode", "CAPM3": "fromHostInterface", "CAPO": "allowedAddressPairs",
			}[row[1]],
		} {
			t.Run(row[1]+" "+file, func(t *testing.T) {
				text := regexp.MustCompile(`@\w+@`).ReplaceAllStringFunc(site.ReadFile(t, "../../../manifests/cluster-api/"+file), func(word string) string {
					if value, ok := words[word]; ok {
						return value
					}
					return "prod" // the name of an object of the user
				})
				testClusterObjects(t, k, []byte(text), field)
			})
		}
	}
}

// testClusterObjects checks that the server accepts the objects, but not with this field misspelt.
func testClusterObjects(t *testing.T, k *site.APIServer, text []byte, field string) {
	misspelt := 0
	for name, object := range site.ObjectsIn(t, text) {
		collection := fmt.Sprintf("/apis/%s/namespaces/default/%ss", object.Tree["apiVersion"], strings.ToLower(object.Tree["kind"].(string)))
		site.Eventually(t, site.Soon, func() error { return k.API.Get(t.Context(), collection, nil) })
		k.Accepts(t, collection, object.Text)
		typo := bytes.Replace(object.Text, []byte(field+":"), []byte(field+"s:"), 1)
		if bytes.Equal(typo, object.Text) {
			continue
		}
		misspelt++
		if status, answer := k.Judge(t, collection, typo); status != http.StatusBadRequest || !strings.Contains(answer, "unknown field") {
			t.Errorf("%s with %ss: %d %s", name, field, status, answer)
		}
	}
	if misspelt != 1 {
		t.Errorf("%s is a field of %d objects, want a single object", field, misspelt)
	}
}
