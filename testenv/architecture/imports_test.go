package architecture

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the import map into docs/architecture.md")

const module = "github.com/herald-vip/herald/"

// folders is the import map, from the ground floor up. A folder imports only folders of earlier rows.
var folders = []folder{
	{"internal", "", "helpers that know nothing of Herald: text, YAML, wake-ups, hashing, files, connection probes"},
	{"api", "internal", "shapes of the Kubernetes resources, and settings of BGP that file and resources share"},
	{"netutil", "internal", "the kernel: links, addresses, routes, connections, the fence"},
	{"health", "internal", "checks and their verdicts"},
	{"bgp", "api internal", "BGP and BFD sessions, routes, graceful shutdown"},
	{"arp", "internal netutil", "ARP and neighbour discovery on the wire"},
	{"election", "internal", "members, electorate and PaxosLeases"},
	{"balancer", "health internal netutil", "backends, and the data planes that forward connections to them"},
	{"speaker", "api arp bgp election health internal netutil", "decides where each VIP is announced"},
	{"config", "api balancer election health internal", "the file: defaults and validation"},
	{"service", "api bgp config internal speaker", "Services of type LoadBalancer: addresses and announcements"},
	{"tenant", "api health internal service", "Services and routes of other clusters"},
	{"status", "api arp balancer bgp election health internal netutil service speaker", "the status for people and monitors"},
	{"migrate", "api balancer config election health internal service", "converts the configuration of other tools"},
	{"manifests", "api balancer config health internal tenant", "files for Kubernetes, systemd, routers and platforms"},
	{"doctor", "api arp balancer bgp config election health internal netutil service speaker status tenant", "examines a node"},
	{"daemon", "api arp balancer bgp config election health internal netutil service speaker status", "one process: wiring, signals, reload"},
	{"cmd", "api config daemon doctor election health internal manifests migrate service status tenant", "commands, flags and exit codes"},
}

// A folder holds the packages of one subject.
type folder struct{ name, imports, subject string }

// exclusive names, for a library, the only folder with packages that may import it.
var exclusive = map[string]string{
	"github.com/osrg/gobgp/v4":        "bgp",
	"k8s.io/client-go":                "service/kube",
	"github.com/hashicorp/memberlist": "election",
	"github.com/mdlayher/arp":         "arp",
}

// Each folder imports exactly the folders that its row names, all of them in earlier rows.
func TestImportsRunOneWay(t *testing.T) {
	imports := productImports(t)
	var below []string
	for _, f := range folders {
		got := slices.Sorted(maps.Keys(imports[f.name]))
		if want := strings.Fields(f.imports); !slices.Equal(got, want) {
			t.Errorf("%s imports %q, the map says %q", f.name, got, want)
		}
		for _, name := range got {
			if !slices.Contains(below, name) {
				t.Errorf("%s imports %s, which is not in an earlier row: %s", f.name, name, strings.Join(imports[f.name][name], ", "))
			}
		}
		below = append(below, f.name)
		delete(imports, f.name)
	}
	for name := range imports {
		t.Errorf("folder %s is missing in the map", name)
	}
}

// docs/architecture.md has the map as a table; go test ./testenv/architecture -update writes it.
func TestMapInTheDocuments(t *testing.T) {
	const begin, end = "<!-- import map: written by go test ./testenv/architecture -update -->\n", "<!-- end of the import map -->"
	page := filepath.Join(root, "docs", "architecture.md")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	old, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no import map", page)
	}
	table := "\n| folder | subject | imports |\n|---|---|---|\n"
	for _, f := range folders {
		table += fmt.Sprintf("| `%s` | %s | %s |\n", f.name, f.subject, f.imports)
	}
	table += "\n"
	if old == table {
		return
	}
	if !*update {
		t.Fatalf("%s has another import map: run go test ./testenv/architecture -update", page)
	}
	if err := os.WriteFile(page, []byte(before+begin+table+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestOneFolderPerLibrary(t *testing.T) {
	for _, p := range packages(t) {
		for _, imported := range p.Imports {
			for library, owner := range exclusive {
				if (imported == library || strings.HasPrefix(imported, library+"/")) && p.name() != owner && !strings.HasPrefix(p.name(), owner+"/") {
					t.Errorf("%s imports %s: only %s may", p.name(), imported, owner)
				}
			}
		}
	}
}

func TestFoldersAtTheTop(t *testing.T) {
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && e.Name() != "bin" && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	if len(names) > 20 {
		t.Errorf("%d folders at the top, want at most 20: %s", len(names), strings.Join(names, " "))
	}
}

type goPackage struct {
	ImportPath string
	Imports    []string
}

func (p goPackage) name() string { return strings.TrimPrefix(p.ImportPath, module) }

// packages lists the module's packages outside testenv, with the imports of their files that are no tests.
func packages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", "./...")
	cmd.Dir = filepath.Clean(root)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []goPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(p.name(), "testenv/") {
			all = append(all, p)
		}
	}
}

// productImports returns, for each folder and each folder that it imports, the importing packages.
func productImports(t *testing.T) map[string]map[string][]string {
	t.Helper()
	imports := make(map[string]map[string][]string)
	for _, p := range packages(t) {
		from := top(p.name())
		if imports[from] == nil {
			imports[from] = make(map[string][]string)
		}
		for _, imported := range p.Imports {
			if name, ours := strings.CutPrefix(imported, module); ours && top(name) != from {
				imports[from][top(name)] = append(imports[from][top(name)], p.name())
			}
		}
	}
	return imports
}

func top(name string) string {
	name, _, _ = strings.Cut(name, "/")
	return name
}
