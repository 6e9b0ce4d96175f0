//go:build e2e

package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestFaultsPage checks that docs/faults.md names no test that does not exist
// where it says.
func TestFaultsPage(t *testing.T) {
	const root = "../.."
	page, err := os.ReadFile(filepath.Join(root, "docs/faults.md"))
	must(t, err)
	tests := make(map[string]map[string]bool) // by folder
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	must(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		if tests[folder] == nil {
			tests[folder] = make(map[string]bool)
		}
		for _, name := range declared.FindAllSubmatch(source, -1) {
			tests[folder][string(name[1])] = true
		}
		return err
	}))

	named := 0
	words := regexp.MustCompile("`([\\w/]+)`:|`(Test\\w+)`")
	for line := range strings.Lines(string(page)) {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		cells := strings.Split(strings.TrimSpace(line), "|")
		folder := "testenv/e2e"
		for _, word := range words.FindAllStringSubmatch(cells[len(cells)-2], -1) {
			if word[1] != "" {
				folder = word[1]
				continue
			}
			named++
			if !tests[folder][word[2]] {
				t.Errorf("there is no %s in %s: %s", word[2], folder, line)
			}
		}
	}
	if named == 0 {
		t.Error("the page names no test")
	}
}
