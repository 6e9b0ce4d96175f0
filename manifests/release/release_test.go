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

// TestRelease makes a release twice, checks its files, and signs it.
func TestRelease(t *testing.T) {
	license := filepath.Join(t.TempDir(), "LICENSE")
	must(t, os.WriteFile(license, []byte("as you like"), 0o600))
	c := releaseCommand{
		build:     build{Version: "v1", Commit: "c0ffee", Time: 1795000000},
		Reference: "herald:v1", Cmd: "run --config x", With: []string{license}, Talos: "manifests/talos/service.yaml",
		Chart: "manifests/helm/herald", Packages: "manifests/package/nfpm.yaml",
		Programs: map[string]string{"amd64": compile(t, "amd64"), "arm": compile(t, "arm"), "arm64": compile(t, "arm64")},
	}
	t.Chdir("../..")
	var sums [2]string
	for i := range sums {
		c.Out = filepath.Join(t.TempDir(), "out")
		must(t, c.Run())
		data, err := os.ReadFile(filepath.Join(c.Out, "SHA256SUMS"))
		must(t, err)
		sums[i] = string(data)
	}
	if sums[0] != sums[1] || strings.Count(sums[0], "\n") != 4+3*5 {
		t.Errorf("checksums of two releases of the same, want four files and five for each architecture:\n%s\n%s", sums[0], sums[1])
	}
	for _, name := range []string{"herald_v1_linux_armv7.tar.gz", "herald_0.0.0~g1_armhf.deb", "herald-0.0.0~g1-1.armv7hl.rpm", "herald-0.0.0-g1.tgz"} {
		if !strings.Contains(sums[0], "  "+name+"\n") {
			t.Errorf("there is no %s in\n%s", name, sums[0])
		}
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
	deb(t, filepath.Join(c.Out, "herald_0.0.0~g1_arm64.deb"))
	signed(t, c)
}

// deb checks the owners and modes in a package with dpkg.
func deb(t *testing.T, path string) {
	t.Helper()
	dpkg := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), "dpkg-deb", append(args, path)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	about := dpkg("--field")
	for _, want := range []string{"Package: herald\n", "Version: 0.0.0~g1\n", "Architecture: arm64\n", "Description: virtual IPs for Kubernetes"} {
		if !strings.Contains(about, want) {
			t.Errorf("there is no %q in\n%s", want, about)
		}
	}
	modes := make(map[string]string)
	for line := range strings.Lines(dpkg("--contents")) {
		fields := strings.Fields(line) // -rwxr-xr-x root/root 123 2026-11-21 12:00 ./usr/bin/herald
		modes[fields[5]] = fields[0] + " " + fields[1]
	}
	for name, want := range map[string]string{
		"./usr/bin/herald":                           "-rwxr-xr-x root/root",
		"./usr/bin/kubectl-herald":                   "lrwxrwxrwx root/root",
		"./usr/lib/systemd/system/herald.service":    "-rw-r--r-- root/root",
		"./etc/herald/":                              "drwxr-xr-x root/root",
		"./etc/herald/herald.yaml":                   "-rw-r--r-- root/root",
		"./usr/share/man/man1/herald-status.1":       "-rw-r--r-- root/root",
		"./usr/share/zsh/vendor-completions/_herald": "-rw-r--r-- root/root",
	} {
		if modes[name] != want {
			t.Errorf("%s is %q, want %q", name, modes[name], want)
		}
	}
	if _, ok := modes["./usr/share/zsh/site-functions/_herald"]; ok {
		t.Error("the deb has what is the rpm's")
	}
}

// TestTalosExtension checks that each folder of the extension precedes its files and is readable by all, and
// that the program of the service has the path that Talos expects.
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
	must(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	must(t, err)
	for archive := tar.NewReader(z); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		must(t, err)
		list = append(list, header.Name+" "+header.FileInfo().Mode().String())
	}
}

// bom checks that a bill of materials names the program and what go.mod wants of it.
func bom(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	var b cdx.BOM
	must(t, json.Unmarshal(data, &b))
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

// TestVersion checks the versions of charts and packages, and that dpkg sorts them; rpm has the same rules.
func TestVersion(t *testing.T) {
	before := ""
	for _, tt := range [][2]string{
		{"57dc0a3-dirty", "0.0.0-g57dc0a3-dirty"},
		{"0123456", "0.0.0-g0123456"},
		{"v0.1.0-rc.1", "0.1.0-rc.1"},
		{"v0.1.0-rc.1-2-g57dc0a3", "0.1.0-rc.1.2.g57dc0a3"},
		{"v0.1.0-rc.2", "0.1.0-rc.2"},
		{"v0.1.0", "0.1.0"},
		{"v0.1.0-3-gabc", "0.1.1-0.3.gabc"},
		{"v0.1.0-12-g57dc0a3-dirty", "0.1.1-0.12.g57dc0a3.dirty"},
		{"v0.1.0-dirty", "0.1.1-0.dirty"},
		{"v0.1.1-rc.1", "0.1.1-rc.1"},
		{"v0.1.1", "0.1.1"},
	} {
		got := (build{Version: tt[0]}).semver()
		if got != tt[1] {
			t.Errorf("%s is %s, want %s", tt[0], got, tt[1])
		}
		packaged := strings.Replace(got, "-", "~", 1) // as nfpm has it
		if err := exec.CommandContext(t.Context(), "dpkg", "--compare-versions", before, "lt", packaged).Run(); err != nil {
			t.Errorf("%s is not before %s: %v", before, packaged, err)
		}
		before = packaged
	}
}
