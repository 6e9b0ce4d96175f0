package main

import (
	"context"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/goccy/go-yaml"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/manifests"
)

// guides are the pages whose commands and configurations are to be copied.
func guides() []string {
	return []string{
		"../../docs/kubeadm.md", "../../docs/k3s.md", "../../docs/services.md",
		"../../docs/balancing.md", balancingKubeadm, balancingRegistry,
	}
}

// blocks are the code blocks of a page in a language.
func blocks(t *testing.T, page, language string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range regexp.MustCompile("(?ms)^( *)```"+language+"\n(.*?)^ *```$").FindAllSubmatch(text, -1) {
		indent := regexp.MustCompile("(?m)^" + string(m[1])) // of a block in a list
		out = append(out, indent.ReplaceAllString(string(m[2]), ""))
	}
	if len(out) == 0 {
		t.Errorf("%s has no %s blocks", page, language)
	}
	return out
}

// TestGuidesConfigurations checks that every configuration in the guides is valid and
// can be made a manifest of.
func TestGuidesConfigurations(t *testing.T) {
	for _, page := range guides() {
		found := 0
		for _, block := range blocks(t, page, "yaml") {
			if !strings.Contains(block, "kind: Speaker") {
				continue
			}
			found++
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
		if found == 0 {
			t.Errorf("%s has no configuration", page)
		}
	}
}

// TestGuidesCommands checks that herald has the commands and flags of the guides.
func TestGuidesCommands(t *testing.T) {
	for _, page := range guides() {
		found := 0
		for _, block := range blocks(t, page, "sh") {
			for line := range strings.Lines(block) {
				line, _, _ = strings.Cut(line, " #")
				line, _, _ = strings.Cut(line, " >")
				words := strings.Fields(line)
				if len(words) == 0 || words[0] != "herald" {
					continue
				}
				found++
				parser, err := kong.New(new(commands), kong.BindTo(context.Background(), (*context.Context)(nil)))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := parser.Parse(words[1:]); err != nil {
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
	for _, block := range blocks(t, guides()[0], "yaml") {
		if !strings.Contains(block, "kind: ClusterConfiguration") {
			continue
		}
		var cluster struct {
			Endpoint string `yaml:"controlPlaneEndpoint"`
			Server   struct {
				Names []string `yaml:"certSANs"`
			} `yaml:"apiServer"`
		}
		if err := yaml.UnmarshalWithOptions([]byte(block), &cluster); err != nil {
			t.Fatal(err)
		}
		host, _, err := net.SplitHostPort(cluster.Endpoint)
		if err != nil || !slices.Contains(cluster.Server.Names, host) || !strings.Contains(block, "10.99.0.10") {
			t.Errorf("the endpoint is %s, the names are %s, %v", cluster.Endpoint, cluster.Server.Names, err)
		}
		return
	}
	t.Error("there is no ClusterConfiguration")
}
