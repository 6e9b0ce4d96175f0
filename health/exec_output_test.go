package health

import (
	"strings"
	"testing"
)

// Any output of a command gives a reason of one bounded line.
func FuzzFirstLine(f *testing.F) {
	for _, s := range []string{"", "\n", "ok\n", "\n \n a\tb \r\nc", "\x1b[31m\x00\xff", strings.Repeat("long ", 1000)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, output []byte) {
		line := firstLine(output)
		if len([]rune(line)) > maxText || strings.ContainsAny(line, "\r\n\x1b\x00") {
			t.Errorf("%q", line)
		}
	})
}
