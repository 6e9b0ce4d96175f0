package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/manifests"
	"github.com/herald-vip/herald/testenv/must"
)

// guides are the pages with commands and configurations to copy.
func guides() []string {
	return []string{
		"../../docs/kubeadm.md", "../../docs/platforms/README.md", "../../docs/services.md", "../../docs/balancing.md", "../../docs/anycast.md",
	}
}

// blocks returns the code blocks of a page, or of one section of it, in a language. page is FILE or FILE#HEADING.
func blocks(t *testing.T, page, language string) []string {
	t.Helper()
	var out []string
	for _, m := range regexp.MustCompile("(?ms)^( *)```"+language+"\n(.*?)^ *```$").FindAllStringSubmatch(section(t, page), -1) {
		indent := regexp.MustCompile("(?m)^" + m[1]) // of a block in a list
		out = append(out, indent.ReplaceAllString(m[2], ""))
	}
	if len(out) == 0 {
		t.Errorf("%s has no %s blocks", page, language)
	}
	return out
}

// section returns the text of FILE, or of the section below its HEADING of level 2 if page is FILE#HEADING.
func section(t *testing.T, page string) string {
	t.Helper()
	file, heading, part := strings.Cut(page, "#")
	data := must.Get[[]byte](t)(os.ReadFile(file))
	text := string(data)
	if part {
		var ok bool
		if _, text, ok = strings.Cut(text, "\n## "+heading+"\n"); !ok {
			t.Fatalf("%s has no section %q", file, heading)
		}
		text, _, _ = strings.Cut(text, "\n## ")
	}
	return text
}

// shared is the configuration that the guides start from.
const shared = "../../docs/herald.yaml"

// configurations returns the configurations of a page: whole ones, and blocks with some sections, which replace the sections of
// the shared configuration. A VIP on a flat layer 2 replaces bgp.
func configurations(t *testing.T, page string) (out []string) {
	t.Helper()
	sections := []string{"vips", "checks", "bgp", "election", "balancers", "services"}
	for _, block := range blocks(t, page, "yaml") {
		if strings.Contains(block, "kind: Speaker") {
			out = append(out, block)
			continue
		}
		var part yaml.MapSlice
		if strings.Contains(block, "\n---") || yaml.Unmarshal([]byte(block), &part) != nil || len(part) == 0 {
			continue
		}
		if slices.ContainsFunc(part, func(item yaml.MapItem) bool { return !slices.Contains(sections, fmt.Sprint(item.Key)) }) {
			continue
		}
		text := must.Get[[]byte](t)(os.ReadFile(shared))
		var whole yaml.MapSlice
		must.Do(t, yaml.Unmarshal(text, &whole))
		replaced := part.ToMap()
		whole = slices.DeleteFunc(whole, func(item yaml.MapItem) bool {
			_, ok := replaced[item.Key]
			return ok || item.Key == "bgp" && strings.Contains(block, "announce: arp")
		})
		merged, err := yaml.Marshal(append(whole, part...))
		must.Do(t, err)
		out = append(out, string(merged))
	}
	if len(out) == 0 {
		t.Errorf("%s has no configuration", page)
	}
	return out
}

// TestGuidesConfigurations checks that every configuration in the guides, and what becomes of
// the shared one by their changes, is valid and can be made a manifest of.
func TestGuidesConfigurations(t *testing.T) {
	all := map[string][]string{}
	for _, page := range append(guides(), "../../README.md", "../../docs/connections.md", "../../docs/flat-layer-2.md", "../../docs/routers.md") {
		all[page] = configurations(t, page)
	}
	for _, file := range []string{shared, "../../docs/herald-worker.yaml"} {
		text := must.Get[[]byte](t)(os.ReadFile(file))
		all[file] = []string{string(text)}
	}
	if !slices.Equal(all["../../README.md"], all[shared]) {
		t.Errorf("README.md and %s have different configurations", shared)
	}
	for page, blocks := range all {
		for _, block := range blocks {
			c, err := config.Parse(page, []byte(block), config.Hostname("m1"))
			if err != nil {
				t.Errorf("%v in\n%s", err, block)
				continue
			}
			for _, kind := range []manifests.Kind{manifests.StaticPod, manifests.DaemonSet, manifests.Systemd} {
				if _, err := manifests.Make(kind, manifests.Options{Config: c}); err != nil {
					t.Errorf("%s: %v of\n%s", kind, err, block)
				}
			}
		}
	}
}

// TestGuidesCommands checks that herald has the commands and flags of the guides.
func TestGuidesCommands(t *testing.T) {
	for _, page := range append(guides(), "../../docs/platforms/machines.md", "../../docs/platforms/README.md#k0s") {
		found := 0
		for _, block := range blocks(t, page, "sh") {
			for line := range strings.Lines(block) {
				line, _, _ = strings.Cut(line, " #")
				line, _, _ = strings.Cut(line, " >")
				line, _, _ = strings.Cut(line, " |")
				words := strings.Fields(line)
				if len(words) == 0 || words[0] != "herald" {
					continue
				}
				found++
				if _, err := newParser().Parse(words[1:]); err != nil {
					t.Errorf("%s: %v: %s", page, err, line)
				}
			}
		}
		if found == 0 {
			t.Errorf("%s has no command", page)
		}
	}
}

// TestGuidesEndpoint checks that kubeadm's configuration has the VIP as the endpoint
// and in the certificate.
func TestGuidesEndpoint(t *testing.T) {
	if at := endpoint(t, guides()[0]); !strings.HasPrefix(at, "10.99.0.10:") {
		t.Errorf("the endpoint is %s", at)
	}
}

// endpoint returns the endpoint in kubeadm's configuration on a page, which its certificate must have.
func endpoint(t *testing.T, page string) string {
	t.Helper()
	for block := range strings.SplitSeq(strings.Join(blocks(t, page, "yaml"), "---\n"), "---\n") {
		if !strings.Contains(block, "kind: ClusterConfiguration") {
			continue
		}
		var cluster struct {
			Endpoint string `yaml:"controlPlaneEndpoint"`
			Server   struct {
				Names []string `yaml:"certSANs"`
			} `yaml:"apiServer"`
		}
		must.Do(t, yaml.Unmarshal([]byte(block), &cluster))
		host, _, err := net.SplitHostPort(cluster.Endpoint)
		if err != nil || !slices.Contains(cluster.Server.Names, host) {
			t.Errorf("the endpoint is %s, the names are %s, %v", cluster.Endpoint, cluster.Server.Names, err)
		}
		return cluster.Endpoint
	}
	t.Fatal("there is no ClusterConfiguration")
	return ""
}

// TestMakeHelp checks that `make help` tells of every target how long it takes, and has a quick one.
func TestMakeHelp(t *testing.T) {
	out, err := exec.Command("make", "--no-print-directory", "-C", "../..", "help").Output()
	must.Do(t, err)
	for line := range strings.Lines(string(out)) {
		if !regexp.MustCompile(`^[a-z0-9-]+ +[0-9]+ (s|min|h) +[a-z]`).MatchString(line) {
			t.Errorf("how long does it take? %s", line)
		}
	}
	if !strings.Contains(string(out), "\nquick ") {
		t.Error("there is no quick tier of the tests")
	}
}
