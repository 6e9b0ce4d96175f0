//go:build mutate

package mutate_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/mutate"
)

// tests are the packages with the tests that must detect a defect below a folder, the
// quick ones first.
var tests = []struct {
	below string
	in    [][]string
}{
	{"election/", [][]string{{"./election/lease", "./election/electorate"}, {"./election/lease/sim"}, {"./election"}}},
	{"netutil/", [][]string{{"./netutil/fence"}}},
	{"speaker/", [][]string{{"./speaker", "./speaker/flat"}, {"./speaker/sim"}}},
}

// TestMutations makes each defect in turn, in a copy that replaces the file for the
// compiler, and checks that tests detect it.
func TestMutations(t *testing.T) {
	all := must.Get[[]mutate.Mutation](t)(mutate.Parse())
	for _, m := range all {
		t.Run(fmt.Sprintf("line %d", m.Line), func(t *testing.T) {
			overlay := overlay(t, m)
			if out, err := run("build", overlay, "./"+filepath.Dir(m.File)); err != nil {
				t.Fatalf("%s does not compile with\n%s: %s", m.File, m.New, out)
			}
			by := killer(m.File, overlay)
			switch {
			case by == "" && m.Equivalent == "":
				t.Errorf("SURVIVED: %s\n-%s+%s", m.File, m.Old, m.New)
			case by != "" && m.Equivalent != "":
				t.Errorf("%s detects it, although the list calls it equivalent: %s", by, m.Equivalent)
			default:
				t.Logf("%s: %s", m.File, by)
			}
		})
	}
}

// killer returns the first test, or package, that fails with a defect in place; empty if none
// does.
func killer(file, overlay string) string {
	try := [][]string{{"./" + filepath.Dir(file)}} // the tests of the file's own package, first
	for _, t := range tests {
		if strings.HasPrefix(file, t.below) {
			try = append(try, t.in...)
		}
	}
	for _, packages := range try {
		out, err := run("test", overlay, append([]string{"-failfast", "-timeout=5m"}, packages...)...)
		if err == nil {
			continue
		}
		if _, name, ok := strings.Cut(out, "--- FAIL: "); ok {
			return strings.Fields(name)[0]
		}
		return strings.Join(packages, " ")
	}
	return ""
}

func run(command, overlay string, args ...string) (string, error) {
	// Rapid stores failing inputs and replays them on the next mutation.
	if err := os.RemoveAll(filepath.Join(root, "netutil/fence/testdata/rapid")); err != nil {
		return "", err
	}
	c := exec.Command("go", append([]string{command, "-overlay=" + overlay}, args...)...)
	c.Dir = root
	out, err := c.CombinedOutput()
	return string(out), err
}

// overlay writes the file that makes the go command use the defective copy.
func overlay(t *testing.T, m mutate.Mutation) string {
	t.Helper()
	text := must.Get[string](t)(m.Apply(root))
	original := must.Get[string](t)(filepath.Abs(filepath.Join(root, m.File)))
	dir := t.TempDir()
	b := must.Get[[]byte](t)(json.Marshal(map[string]map[string]string{"Replace": {original: filepath.Join(dir, "mutated.go")}}))
	must.Do(t, os.WriteFile(filepath.Join(dir, "mutated.go"), []byte(text), 0o600))
	must.Do(t, os.WriteFile(filepath.Join(dir, "overlay.json"), b, 0o600))
	return filepath.Join(dir, "overlay.json")
}
