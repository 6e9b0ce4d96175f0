package text_test

import (
	"testing"

	"github.com/herald-vip/herald/internal/text"
)

func TestOneLine(t *testing.T) {
	for in, want := range map[string]string{
		"":                         "",
		" two \r\n\tlines\u2028 ":  "two lines",
		"\x1b[31mred\x00\a":        ".[31mred..",
		"caf\xe9 \u00e9":           "caf. \u00e9",
		"zero\u200bwidth\u202eltr": "zero.width.ltr",
	} {
		if got := text.OneLine(in); got != want {
			t.Errorf("OneLine(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestShort(t *testing.T) {
	for in, want := range map[string]string{"äöüß": "äöüß", "äöüßa": "äöü…", "ä \n ö ü ß": "ä ö…"} {
		if got := text.Short(in, 4); got != want {
			t.Errorf("Short(%q) = %q, want %q", in, got, want)
		}
	}
}
