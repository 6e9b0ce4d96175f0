package priority

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/herald-vip/herald/testenv/must"
)

// The score that the kubelet gives node-critical pods protects enough, and they lack the capability to lower it.
func TestProtect(t *testing.T) {
	for score, want := range map[string]string{"0": "-999", "-899": "-999", "-900": "-900", "-997": "-997", "-1000": "-1000"} {
		file := filepath.Join(t.TempDir(), "oom_score_adj")
		must.Do(t, os.WriteFile(file, []byte(score+"\n"), 0o600))
		if err := protect(file); err != nil {
			t.Error(err)
		}
		got, err := os.ReadFile(file)
		if err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("%s becomes %q, %v; want %s", score, got, err, want)
		}
	}
	if err := protect(t.TempDir()); err == nil {
		t.Error("no error where there is nothing to read")
	}
}
