package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// alike gives the reason for each pair of structs that share field names but not a meaning.
var alike = map[string]string{
	"api/v1alpha1.NodeSession bgp.Session":                "the API's short form: texts within limits, no counters",
	"api/v1alpha1.NodeSession bgp/bfd.Status":             "words of every status: a BGP session in the API, a BFD session here",
	"api/v1alpha1.NodeVIP bgp.Session":                    "words of every status: a VIP and a session",
	"api/v1alpha1.NodeVIP health.Verdict":                 "words of every status: a VIP and a check",
	"api/v1alpha1.NodeVIP speaker.Status":                 "the API's short form: texts within limits",
	"api/v1alpha1.TCPLoadBalancerSpec service/pool.Claim": "the API's texts, and the claim parsed from them or from a Service's annotations",
	"api/v1alpha1.TenantStatus tenant.Report":             "counts of a manager, and the sentences that the API shows of them",
	"bgp.Config config.BGP":                               "config must not import GoBGP; the peers and attributes in both are those of api/v1alpha1",
	"config.VIP speaker.VIP":                              "the file's form, and the resolved form that Services' addresses have, too",
	"service/announce.AddressStatus speaker.Status":       "two announcements of one address: by BGP, and on a flat layer 2",
}

// A struct of one package that repeats the fields of another package's struct needs a reason in [alike].
func TestOneTypePerFact(t *testing.T) {
	structs := productStructs(t)
	found := make(map[string]bool)
	for i, a := range structs {
		for _, b := range structs[i+1:] {
			if a.dir == b.dir {
				continue
			}
			common := a.common(b)
			if len(common) < 4 || 2*len(common) < min(len(a.fields), len(b.fields)) {
				continue
			}
			pair := a.String() + " " + b.String()
			found[pair] = true
			if alike[pair] == "" {
				t.Errorf("%s: both have the fields %s: use one type, or give a reason in alike", pair, strings.Join(common, ", "))
			}
		}
	}
	for pair := range alike {
		if !found[pair] {
			t.Errorf("%s: the structs are no longer alike: remove the pair from alike", pair)
		}
	}
	if most := 10; len(found) > most {
		t.Errorf("%d pairs of structs have the same fields, want at most %d", len(found), most)
	}
}

// A shape is the field names of a struct type.
type shape struct {
	dir, name string
	fields    []string
}

func (s shape) String() string { return s.dir + "." + s.name }

func (s shape) common(other shape) []string {
	var out []string
	for _, f := range s.fields {
		if slices.Contains(other.fields, f) {
			out = append(out, f)
		}
	}
	return out
}

// productStructs returns the struct types of all files that are neither tests, testenv nor generated, sorted by name.
func productStructs(t *testing.T) []shape {
	t.Helper()
	var all []shape
	files := token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if entry.IsDir() && (rel == "testenv" || rel == "bin" || entry.Name() == "testdata" || strings.HasPrefix(rel, ".") && rel != ".") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go") || strings.HasPrefix(entry.Name(), "zz_generated") {
			return nil
		}
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if decl, ok := n.(*ast.TypeSpec); ok {
				if fields := fieldNames(decl); len(fields) > 0 {
					all = append(all, shape{filepath.Dir(rel), decl.Name.Name, fields})
				}
			}
			return true
		})
		return nil
	})
	if err != nil || len(all) == 0 {
		t.Fatalf("%d structs, %v", len(all), err)
	}
	slices.SortFunc(all, func(a, b shape) int { return strings.Compare(a.String(), b.String()) })
	return all
}

// machinery names fields that hold no fact: locks, loggers and the ends of goroutines.
var machinery = []string{"closed", "log", "mu", "notify", "wake"}

// fieldNames returns the field names of a struct type, without machinery and fields of embedded structs; nil for other types.
func fieldNames(decl *ast.TypeSpec) []string {
	body, ok := decl.Type.(*ast.StructType)
	if !ok {
		return nil
	}
	var names []string
	for _, f := range body.Fields.List {
		for _, name := range f.Names {
			if !slices.Contains(machinery, name.Name) {
				names = append(names, name.Name)
			}
		}
	}
	return names
}
