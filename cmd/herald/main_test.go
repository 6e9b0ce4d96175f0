package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// What is wrong with the arguments is not taken for what was asked for:
// `herald manifest … >FILE`.
func TestUsageGoesToStandardError(t *testing.T) {
	var out, stderr bytes.Buffer
	exited := false
	parse([]string{"manifest", "systemd", "--no-such-flag"}, kong.Writers(&out, &stderr), kong.Exit(func(int) { exited = true }))
	if !exited || out.Len() > 0 || !strings.Contains(stderr.String(), "Usage: herald manifest") || !strings.Contains(stderr.String(), "unknown flag") {
		t.Errorf("exited: %t, standard output %q, standard error %q", exited, &out, &stderr)
	}
}
