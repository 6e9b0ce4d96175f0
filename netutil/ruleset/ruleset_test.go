package ruleset

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

// Fault logs a lasting error once, and its end once.
func TestFaultIsLoggedOnce(t *testing.T) {
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	var fault Fault
	for _, err := range []error{nil, ErrStuck, ErrStuck, errors.New("other"), nil, nil} {
		fault.Log(log, err, "not refreshed", "refreshed again")
	}
	if n := strings.Count(text.String(), "level=ERROR"); n != 2 || strings.Count(text.String(), "refreshed again") != 1 {
		t.Errorf("the log is:\n%s", text.String())
	}
}
