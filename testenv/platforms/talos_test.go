package platforms

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/extensions"
	"github.com/siderolabs/talos/pkg/machinery/extensions/services"
	"go.yaml.in/yaml/v4"

	"github.com/herald-vip/herald/manifests/release/oci"
	"github.com/herald-vip/herald/manifests/release/talos"
)

// TestTalosExtension checks the image's files with Talos' own packages.
func TestTalosExtension(t *testing.T) {
	service, err := os.ReadFile("../../manifests/talos/service.yaml")
	must(t, err)
	image := talos.Extension(oci.Image{}, "herald", "v1", service)
	root := t.TempDir()
	for _, f := range image.Beside {
		path := filepath.Join(root, f.Name)
		if strings.HasSuffix(f.Name, "/") {
			err = os.Mkdir(path, os.FileMode(f.Mode))
		} else {
			err = os.WriteFile(path, f.Data, os.FileMode(f.Mode))
		}
		must(t, err) // a folder precedes its files
	}
	e, err := extensions.Load(root)
	must(t, err)
	if err := e.Validate(extensions.WithValidateConstraints(), extensions.WithValidateContents()); err != nil {
		t.Error(err)
	}
	if e.Manifest.Metadata.Version != "v1" {
		t.Errorf("the extension is %+v", e.Manifest.Metadata)
	}
	s, err := talosService(filepath.Join(root, "rootfs", constants.ExtensionServiceConfigPath, "herald.yaml"))
	must(t, err)
	if want := "/rootfs" + filepath.Join(constants.ExtensionServiceRootfsPath, s.Name, s.Container.Entrypoint); image.Entrypoint != want {
		t.Errorf("the program is %s, and Talos runs %s", image.Entrypoint, want)
	}
}

func talosService(path string) (services.Spec, error) {
	var s services.Spec
	data, err := os.ReadFile(path)
	if err != nil {
		return s, err
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(&s); err != nil {
		return s, err
	}
	return s, s.Validate()
}

// TestTalosPatch applies the patch to a control plane node's configuration with Talos' own
// packages.
func TestTalosPatch(t *testing.T) {
	patch, err := os.ReadFile("../../manifests/talos/patch.yaml")
	must(t, err)
	input, err := generate.NewInput("herald", "https://10.99.0.10:6443", constants.DefaultKubernetesVersion)
	must(t, err)
	node, err := input.Config(machine.TypeControlPlane)
	must(t, err)
	p, err := configpatcher.LoadPatch(patch)
	must(t, err)
	patched, err := configpatcher.Apply(configpatcher.WithConfig(node), []configpatcher.Patch{p})
	must(t, err)
	got, err := patched.Config()
	must(t, err)
	all := got.ExtensionServiceConfigs()
	if len(all) != 1 || all[0].Name() != "herald" || len(all[0].ConfigFiles()) != 1 || all[0].ConfigFiles()[0].MountPath() != "/etc/herald/herald.yaml" {
		t.Errorf("the node configures %+v", all)
	}
	for _, key := range []string{"certSANs", "sysctls", "configFiles", "mountPath"} {
		if _, err := configpatcher.LoadPatch(bytes.Replace(patch, []byte(key), []byte(key+"s"), 1)); err == nil {
			t.Errorf("%ss is taken", key)
		}
	}
}
