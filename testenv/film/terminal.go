package main

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// cell is one character with its colour, an SGR parameter; 0 is none.
type cell struct {
	char   rune
	colour int
}

// terminal understands what the demo writes: text, colours, going up some lines
// and clearing what is below. Everything it ever showed stays in lines.
type terminal struct {
	lines  [][]cell
	row    int
	column int
	colour int
	rest   string // the begin of a sequence that is not whole yet
}

var control = regexp.MustCompile(`^\x1b\[([0-9;?]*)([A-Za-z])`)

func (t *terminal) write(s string) {
	s, t.rest = t.rest+s, ""
	for s != "" {
		if s[0] == '\x1b' {
			m := control.FindStringSubmatch(s)
			if m == nil {
				t.rest = s
				return
			}
			n, _ := strconv.Atoi(m[1]) // of several parameters none is of interest
			t.control(m[2], n)
			s = s[len(m[0]):]
			continue
		}
		r, size := utf8.DecodeRuneInString(s)
		t.put(r)
		s = s[size:]
	}
}

func (t *terminal) control(name string, n int) {
	switch name {
	case "A":
		t.row = max(0, t.row-n)
	case "J":
		t.lines = t.lines[:min(len(t.lines), t.row)]
		t.column = 0
	case "m":
		t.colour = n
	}
}

func (t *terminal) put(r rune) {
	switch r {
	case '\n':
		t.row++
		return
	case '\r':
		t.column = 0
		return
	}
	for len(t.lines) <= t.row {
		t.lines = append(t.lines, nil)
	}
	line := t.lines[t.row]
	for len(line) <= t.column {
		line = append(line, cell{char: ' '})
	}
	line[t.column] = cell{r, t.colour}
	t.lines[t.row] = line
	t.column++
}

// screen is a copy of the last lines there are.
func (t *terminal) screen(height int) [][]cell {
	from := max(0, len(t.lines)-height)
	var out [][]cell
	for _, line := range t.lines[from:] {
		out = append(out, slices.Clone(line))
	}
	return out
}

// text is a line without its colours.
func text(line []cell) string {
	var b strings.Builder
	for _, c := range line {
		b.WriteRune(c.char)
	}
	return strings.TrimRight(b.String(), " ")
}
