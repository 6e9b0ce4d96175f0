//go:build e2e

package site

import (
	"testing"

	"github.com/herald-vip/herald/testenv/guide"
)

// Blocks returns the code blocks of the document at a path, as [guide.Blocks] does.
func Blocks(t *testing.T, path, heading, language string) []string {
	t.Helper()
	return guide.Blocks(ReadFile(t, path), heading, language)
}
