//go:build e2e

package e2e

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

const servicesGuide = "../../docs/services.md"

// guideBlocks are the code blocks of docs/services.md in a language, without the
// indentation of a list.
func guideBlocks(t *testing.T, language string) [][]byte {
	t.Helper()
	text, err := os.ReadFile(servicesGuide)
	must(t, err)
	var out [][]byte
	for _, m := range regexp.MustCompile("(?ms)^( *)```"+language+"\n(.*?)^ *```$").FindAllSubmatch(text, -1) {
		out = append(out, regexp.MustCompile("(?m)^"+string(m[1])).ReplaceAll(m[2], nil))
	}
	return out
}

// testGuide shows the API server the objects of docs/services.md.
func (a *crdAPI) testGuide(t *testing.T) {
	judged := map[string]int{}
	for _, block := range guideBlocks(t, "yaml") {
		if !bytes.Contains(block, []byte("\nmetadata:")) {
			continue // a file of Herald's, or values
		}
		for _, o := range objectsIn(t, block) {
			judged[o.tree["kind"].(string)]++
			if status, answer := a.create(t, collectionOf(t, o.tree), o.text); status != http.StatusCreated {
				t.Errorf("%d %s\n%s", status, answer, o.text)
			}
		}
	}
	if judged["AddressPool"] < 2 || judged["BGPPeer"] < 2 || judged["Service"] < 1 {
		t.Errorf("only %v were judged", judged)
	}
}

// TestServicesGuide has FRR read the router's part of docs/services.md, and helm the
// values; and looks for the words of its tables of troubles in the program.
func TestServicesGuide(t *testing.T) {
	routers := guideBlocks(t, "frr")
	if len(routers) != 1 {
		t.Fatalf("%d configurations of FRR, want one", len(routers))
	}
	file := filepath.Join(t.TempDir(), "frr.conf")
	must(t, os.WriteFile(file, routers[0], 0o644))
	if out, err := exec.CommandContext(t.Context(), "vtysh", "--dryrun", "--inputfile", file).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("vtysh: %v\n%s", err, out)
	}
	found := 0
	for _, block := range guideBlocks(t, "yaml") {
		if bytes.HasPrefix(block, []byte("# values.yaml of the chart\n")) {
			found++
			rendered(t, string(block))
		}
	}
	if found == 0 {
		t.Error("there are no values of the chart")
	}
}

// TestServicesGuideWords checks that the program still says what the guide explains.
func TestServicesGuideWords(t *testing.T) {
	guide, err := os.ReadFile(servicesGuide)
	must(t, err)
	_, troubles, ok := bytes.Cut(guide, []byte("\n## Troubleshooting\n"))
	troubles, _, end := bytes.Cut(troubles, []byte("\n## "))
	if !ok || !end {
		t.Fatal("the guide has no section of troubles")
	}
	var sources []byte
	for _, folder := range []string{"service", "service/announce", "service/assign", "pool", "admin", "kube", "daemon", "election", "netutil"} {
		files, err := filepath.Glob("../../" + folder + "/*.go")
		must(t, err)
		for _, f := range slices.DeleteFunc(files, func(f string) bool { return bytes.HasSuffix([]byte(f), []byte("_test.go")) }) {
			text, err := os.ReadFile(f)
			must(t, err)
			sources = append(sources, text...)
		}
	}
	// Wherever a value is put in, the guide has three dots.
	values := regexp.MustCompile(`%[a-z]`)
	sources = values.ReplaceAll(sources, []byte("…"))
	checked := 0
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*) \\|").FindAllSubmatch(troubles, -1) {
		for _, quoted := range regexp.MustCompile("`([^`]+)`").FindAllSubmatch(row[1], -1) {
			for _, words := range bytes.Split(quoted[1], []byte("…")) {
				words = bytes.TrimSpace(words)
				words = bytes.ReplaceAll(words, []byte("IPv4"), []byte("…"))
				if bytes.Contains(words, []byte("kubectl")) || len(words) < 4 {
					continue
				}
				checked++
				if !bytes.Contains(sources, words) {
					t.Errorf("nothing says %q", words)
				}
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d words were looked for", checked)
	}
}
