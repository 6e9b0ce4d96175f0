// Package pages compares documents with the tests, programs and files that they
// mention. It needs no lab.
package pages

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/services"
)

const root = "../../../"

func read(t *testing.T, path string) []byte {
	t.Helper()
	return must.Get[[]byte](t)(os.ReadFile(filepath.Join(root, path)))
}

// sources calls take with each Go file, either the tests or the others.
func sources(t *testing.T, tests bool, take func(folder string, source []byte)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") != tests {
			return err
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		take(folder, source)
		return err
	})
	must.Do(t, err)
}

// namedTests checks the tests that a page's rows name.
type namedTests struct {
	folders map[string][]string // by test
}

func newNamedTests(t *testing.T) namedTests {
	n := namedTests{folders: make(map[string][]string)}
	declared := regexp.MustCompile(`(?m)^func (Test\w+|Fuzz\w+)\(`)
	sources(t, true, func(folder string, source []byte) {
		for _, name := range declared.FindAllSubmatch(source, -1) {
			n.folders[string(name[1])] = append(n.folders[string(name[1])], "/"+folder+"/")
		}
	})
	return n
}

// check checks that each test in the last cell of a row exists in its folder, by
// default below testenv/e2e, and returns the number of tests.
func (n namedTests) check(t *testing.T, row string) (named int) {
	t.Helper()
	cells := cellsOf(row)
	folder := "testenv/e2e"
	words := regexp.MustCompile("`([\\w/]+)`:|`((?:Test|Fuzz)\\w+)`")
	for _, word := range words.FindAllStringSubmatch(cells[len(cells)-1], -1) {
		if word[1] != "" {
			folder = word[1]
			continue
		}
		named++
		if !slices.ContainsFunc(n.folders[word[2]], func(f string) bool { return strings.Contains(f, "/"+folder+"/") }) {
			t.Errorf("there is no %s in %s: %s", word[2], folder, row)
		}
	}
	return named
}

// cellsOf returns the cells of a table's row, without the spaces around them.
func cellsOf(row string) []string {
	cells := strings.Split(strings.Trim(strings.TrimSpace(row), "|"), "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}

// TestFaultsPage checks that each test that docs/faults.md names exists where the page
// says, and that each row names one.
func TestFaultsPage(t *testing.T) {
	tests, rows := newNamedTests(t), 0
	for line := range strings.Lines(string(read(t, "docs/faults.md"))) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| fault |") {
			continue
		}
		rows++
		if tests.check(t, line) == 0 {
			t.Errorf("the row names no test: %s", line)
		}
	}
	if rows < 40 {
		t.Errorf("the page has %d rows only", rows)
	}
}

// TestComparisonPage checks the same of the tables of docs/comparison.md that have a
// column of evidence: a row may name no test only if Herald lacks the feature.
func TestComparisonPage(t *testing.T) {
	tests, rows, shown := newNamedTests(t), 0, false
	for line := range strings.Lines(string(read(t, "docs/comparison.md"))) {
		cells := cellsOf(line)
		switch {
		case !strings.HasPrefix(line, "|"):
			shown = false // the table is over
		case strings.HasPrefix(line, "| |"):
			shown = cells[len(cells)-1] == "shown by"
		case shown && strings.HasPrefix(line, "| "):
			rows++
			if herald := cells[1]; tests.check(t, line) == 0 && herald != "no" && herald != "few" {
				t.Errorf("the row names no test: %s", line)
			}
		}
	}
	if rows < 30 {
		t.Errorf("the page has %d rows only", rows)
	}
}

// TestConformancePage checks that the section of testenv/e2e/README.md on Kubernetes'
// own tests names all of them, and only existing ones.
func TestConformancePage(t *testing.T) {
	var tests []string
	declared := regexp.MustCompile(`(?m)^func (TestLoadBalancer\w*)\(|^\t+t\.Run\("([^"]+)", b\.test`)
	sources(t, true, func(folder string, source []byte) {
		if folder != "testenv/e2e/services" {
			return
		}
		for _, name := range declared.FindAllSubmatch(source, -1) {
			tests = append(tests, string(name[1])+string(name[2]))
		}
	})
	for _, protocol := range []string{"TCP", "UDP", "SCTP"} {
		tests = append(tests, "type and ports change, "+protocol)
	}
	others := []string{ // names that are no tests
		"VIP", "Proxy", "requireEndpoints", "services/status", "spec.externalIPs", "sudo make e2e", "herald status",
		"manifests/kustomize/services", "type and ports change", services.Excluded,
	}
	named := make(map[string]bool)
	_, section, ok := strings.Cut(string(read(t, "testenv/e2e/README.md")), "\n## Kubernetes' own tests of load balancers\n")
	section, _, end := strings.Cut(section, "\n## ")
	if !ok || !end {
		t.Fatal("the page has no section on Kubernetes' own tests")
	}
	for _, word := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(section, -1) {
		named[word[1]] = true
		if !slices.Contains(tests, word[1]) && !slices.Contains(others, word[1]) {
			t.Errorf("there is no test %q", word[1])
		}
	}
	for _, name := range tests {
		if !named[name] {
			t.Errorf("the page does not name %q", name)
		}
	}
}

// TestServicesGuideWords checks that docs/services.md quotes the program's current messages.
func TestServicesGuideWords(t *testing.T) {
	_, troubles, ok := bytes.Cut(read(t, "docs/services.md"), []byte("\n## Troubleshooting\n"))
	troubles, _, end := bytes.Cut(troubles, []byte("\n## "))
	if !ok || !end {
		t.Fatal("the guide has no section Troubleshooting")
	}
	var program []byte
	sources(t, false, func(folder string, source []byte) {
		if !strings.HasPrefix(folder, "testenv") {
			program = append(program, source...)
		}
	})
	// The guide has an ellipsis for each inserted value.
	program = regexp.MustCompile(`%[a-z]`).ReplaceAll(program, []byte("…"))
	checked := 0
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*) \\|").FindAllSubmatch(troubles, -1) {
		for _, quoted := range regexp.MustCompile("`([^`]+)`").FindAllSubmatch(row[1], -1) {
			for _, words := range bytes.Split(quoted[1], []byte("…")) {
				words = bytes.ReplaceAll(bytes.TrimSpace(words), []byte("IPv4"), []byte("…"))
				if bytes.Contains(words, []byte("kubectl")) || len(words) < 4 {
					continue
				}
				checked++
				if !bytes.Contains(program, words) {
					t.Errorf("the program lacks the words %q", words)
				}
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d quotations were checked", checked)
	}
}

// userData holds the fields of a file of manifests/cloud-init that a test here reads.
type userData struct {
	Files    []struct{ Path, Content, Owner, Permissions string } `yaml:"write_files"`
	Commands [][]string                                           `yaml:"runcmd"`
}

func readUserData(t *testing.T, name string) (u userData) {
	t.Helper()
	must.Do(t, yaml.Unmarshal(read(t, "manifests/cloud-init/"+name), &u))
	return u
}

// content returns the content of the file with this path.
func (u userData) content(path string) string {
	for _, f := range u.Files {
		if f.Path == path {
			return f.Content
		}
	}
	return ""
}

// TestUserDataCopies compares the user-data's copies of other files, since it cannot
// refer to them, with the originals.
func TestUserDataCopies(t *testing.T) {
	const unit = "/etc/systemd/system/herald.service"
	for _, c := range []struct{ userData, path, source string }{
		{"master-bgp.yaml", unit, "manifests/herald.service"},
		{"master-arp.yaml", unit, "manifests/herald.service"},
		{"master-local.yaml", unit, "manifests/herald.service"},
		{"worker.yaml", unit, "manifests/herald.service"},
		{"router.yaml", "/etc/frr/frr.conf", "manifests/routers/frr.conf"},
		{"router.yaml", "/etc/frr/daemons", "manifests/routers/frr-daemons"},
		{"router.yaml", "/etc/sysctl.d/90-herald-router.conf", "manifests/routers/sysctl.conf"},
	} {
		if got := readUserData(t, c.userData).content(c.path); got != string(read(t, c.source)) {
			t.Errorf("%s in %s is not %s: copy it there", c.path, c.userData, c.source)
		}
	}
	const sysctls, setting = "/etc/sysctl.d/90-herald.conf", "net.ipv4.conf.all.arp_announce = 2\n"
	bgp := readUserData(t, "master-bgp.yaml")
	loaded := slices.ContainsFunc(bgp.Commands, func(c []string) bool { return slices.Equal(c, []string{"sysctl", "-p", sysctls}) })
	if !strings.Contains(bgp.content(sysctls), setting) || !loaded {
		t.Errorf("master-bgp.yaml does not set %s", setting)
	}
	for _, other := range []string{"master-arp.yaml", "master-local.yaml", "worker.yaml"} {
		u := readUserData(t, other)
		for _, path := range []string{"/etc/herald/release", "/usr/local/sbin/herald-fetch", unit + ".d/fetch.conf"} {
			if bgp.content(path) == "" || bgp.content(path) != u.content(path) {
				t.Errorf("%s differs between master-bgp.yaml and %s", path, other)
			}
		}
	}
}

// programTexts returns the string literals of the product, with "…" for verbs of fmt and for numbers.
func programTexts(t *testing.T) string {
	t.Helper()
	values := regexp.MustCompile(`%[-+#0-9.\[\]*]*[a-zA-Z]|[0-9]+`)
	var out strings.Builder
	sources(t, false, func(folder string, source []byte) {
		if strings.HasPrefix(folder, "testenv") || strings.HasPrefix(folder, ".") {
			return
		}
		file := must.Get[*ast.File](t)(parser.ParseFile(token.NewFileSet(), folder, source, parser.SkipObjectResolution))
		ast.Inspect(file, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				out.WriteString(values.ReplaceAllString(must.Get[string](t)(strconv.Unquote(literal.Value)), "…") + "\n")
			}
			return true
		})
	})
	return out.String()
}

// noMessages lists quotes with spaces that are no messages of Herald, with the reason.
var noMessages = map[string]string{
	"address already in use":          "error text of the kernel",
	"cannot assign requested address": "error text of the kernel",
	"operation not permitted":         "error text of the kernel",
	"500: [-]etcd failed":             "answer of an apiserver",
	"control-plane 10.99.0.10":        "name and address of a VIP",
	"no zebra nexthop kernel enable":  "setting of FRR",
	"bgp ebgp-requires-policy":        "setting of FRR",
	"vip not":                         "speaker composes it",
	"vip cannot be announced here":    "speaker composes it",
	"announced to 0 of 2 peers":       "status/admin composes it",
}

var (
	// commandLine matches quotes of commands.
	commandLine = regexp.MustCompile(`^(arping|curl|herald|ip|kubeadm|kubectl|sysctl|systemctl|vtysh) `)
	// configLine matches quotes of the configuration file: a field and its value.
	configLine = regexp.MustCompile(`^[a-z][\w.]*: [\w{\[]\S*$`)
)

// TestQuotedMessages checks that Herald's code has each log message, status text and finding that docs/runbook.md and
// docs/troubleshooting.md quote. A quote has "…" in place of values. Quotes without a space are names, which other
// tests check.
func TestQuotedMessages(t *testing.T) {
	program, used, checked := programTexts(t), make(map[string]bool), 0
	numbers := regexp.MustCompile(`[0-9]+`)
	known := func(words string) bool {
		words = strings.Trim(numbers.ReplaceAllString(words, "…"), " …:")
		return strings.Contains(program, words)
	}
	for _, page := range []string{"docs/runbook.md", "docs/troubleshooting.md"} {
		text := regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(string(read(t, page)), "")
		for _, quote := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(text, -1) {
			quote := strings.Join(strings.Fields(quote[1]), " ")
			if commandLine.MatchString(quote) || configLine.MatchString(quote) {
				continue
			}
			for words := range strings.SplitSeq(quote, "…") {
				words = strings.TrimSpace(words)
				if noMessages[words] != "" {
					used[words] = true
					continue
				}
				if !strings.Contains(words, " ") {
					continue
				}
				checked++
				// A title or a name is put before a text with a colon.
				title, rest, split := strings.Cut(words, ": ")
				if !known(words) && !(split && known(title) && known(rest)) {
					t.Errorf("%s quotes %q, but no text of the program has %q", page, quote, words)
				}
			}
		}
	}
	for words := range noMessages {
		if !used[words] {
			t.Errorf("the exception %q is unused: remove it", words)
		}
	}
	if checked < 80 {
		t.Errorf("only %d texts were checked", checked)
	}
}
