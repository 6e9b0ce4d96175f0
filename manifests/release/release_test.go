package main

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/herald-vip/herald/manifests/release/archive"
	"github.com/herald-vip/herald/manifests/release/oci"
	"github.com/herald-vip/herald/manifests/release/talos"
)

// compile builds a program for an architecture, as make builds Herald.
func compile(t *testing.T, arch string, flags ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "herald")
	args := append([]string{"build", "-trimpath", "-buildvcs=false", "-o", path}, flags...)
	cmd := exec.CommandContext(t.Context(), "go", append(args, "./testdata/herald")...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// TestRelease makes a release of a program, twice, and reads what is in it.
func TestRelease(t *testing.T) {
	license := filepath.Join(t.TempDir(), "LICENSE")
	if err := os.WriteFile(license, []byte("as you like"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := releaseCommand{
		build:     build{Version: "v1", Commit: "c0ffee", Time: 1795000000},
		Reference: "herald:v1", Cmd: "run --config x", With: []string{license}, Talos: "../talos/service.yaml",
		Programs: map[string]string{"amd64": compile(t, "amd64"), "arm64": compile(t, "arm64")},
	}
	var sums [2]string
	for i := range sums {
		c.Out = filepath.Join(t.TempDir(), "out")
		if err := c.Run(); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(c.Out, "SHA256SUMS"))
		if err != nil {
			t.Fatal(err)
		}
		sums[i] = string(data)
	}
	if sums[0] != sums[1] || strings.Count(sums[0], "\n") != 8 {
		t.Errorf("checksums of two releases of the same, want eight files:\n%s\n%s", sums[0], sums[1])
	}
	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = c.Out
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
	want := []string{"herald_v1_linux_arm64/herald -rwxr-xr-x", "herald_v1_linux_arm64/LICENSE -rw-r--r--"}
	if got := contents(t, filepath.Join(c.Out, "herald_v1_linux_arm64.tar.gz")); !slices.Equal(got, want) {
		t.Errorf("the archive has %q, want %q", got, want)
	}
	bom(t, filepath.Join(c.Out, "herald_v1_linux_arm64.cdx.json"))
}

// TestTalosExtension checks that each folder of the extension is there before what is in it, and open to all, and
// that the service's program is where Talos looks for it.
func TestTalosExtension(t *testing.T) {
	image := talos.Extension(oci.Image{}, "herald", "v1", []byte("service"))
	made := map[string]bool{"./": true}
	for _, f := range image.Beside {
		name := strings.TrimSuffix(f.Name, "/")
		if folder := path.Dir(name) + "/"; !made[folder] {
			t.Errorf("%s is not made before %s", folder, f.Name)
		}
		if name+"/" == f.Name {
			made[f.Name] = true
			if f.Mode != 0o755 {
				t.Errorf("%s has mode %o", f.Name, f.Mode)
			}
		}
	}
	i := slices.IndexFunc(image.Beside, func(f archive.File) bool { return f.Name == "rootfs/usr/local/etc/containers/herald.yaml" })
	if i < 0 || string(image.Beside[i].Data) != "service" || image.Entrypoint != "/rootfs/usr/local/lib/containers/herald/herald" || !made[path.Dir(image.Entrypoint)[1:]+"/"] {
		t.Errorf("%+v", image)
	}
}

// contents are the files of an archive and their modes.
func contents(t *testing.T, path string) (list []string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for archive := tar.NewReader(z); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, header.Name+" "+header.FileInfo().Mode().String())
	}
}

// bom checks that a bill of materials names the program and what go.mod wants of it.
func bom(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var b cdx.BOM
	if err := json.Unmarshal(data, &b); err != nil {
		t.Fatal(err)
	}
	if main := b.Metadata.Component; main.PackageURL != "pkg:golang/github.com/herald-vip/herald/manifests/release@v1" {
		t.Errorf("it is of %s", main.PackageURL)
	}
	for _, want := range []string{"pkg:golang/std@1.", "pkg:golang/github.com/opencontainers/image-spec@v1."} {
		if !slices.ContainsFunc(*b.Components, func(c cdx.Component) bool { return strings.HasPrefix(c.PackageURL, want) }) {
			t.Errorf("there is no %s", want)
		}
	}
	if needs := (*b.Dependencies)[0].Dependencies; len(*needs) != len(*b.Components) {
		t.Errorf("%d dependencies of %d components", len(*needs), len(*b.Components))
	}
}

// TestCheckStatic wants everything refused that does not run in an empty image.
func TestCheckStatic(t *testing.T) {
	static := compile(t, "arm64")
	if err := checkStatic(static, "arm64"); err != nil {
		t.Error(err)
	}
	for _, tt := range []struct{ path, arch, want string }{
		{static, "amd64", "is for EM_AARCH64, not for amd64"},
		{static, "mips", `no releases for the architecture "mips"`},
		{compile(t, "amd64", "-buildmode=pie"), "amd64", "linked dynamically"},
		{"release_test.go", "amd64", "bad magic number"},
	} {
		if err := checkStatic(tt.path, tt.arch); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("checkStatic(%s, %s) = %v, want %q", tt.path, tt.arch, err, tt.want)
		}
	}
}
