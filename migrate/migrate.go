// Package migrate has what the converters of other programs' configuration into
// Herald's share: kubevip of manifests, keepalived of files, metallb of resources.
//
// All converters are pure: bytes in, a configuration and notes out. What has no
// counterpart is noted with its line, never dropped in silence; what only a human
// can know is left open, marked FILL IN, and never made up. What is written has
// been validated by package config, so that Herald refuses nothing in it that was
// not said.
package migrate

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/herald-vip/herald/internal/yaml"
)

// GossipPort is the port of election members unless another is given.
const GossipPort = 7946

// DefaultNamespace is where Herald runs if it announces Services.
const DefaultNamespace = "herald-system"

// MaxNotes is how many notes a file may cause.
const MaxNotes = 1000

// Options is what the file does not say.
type Options struct {
	// File is what notes call the input.
	File string
	// Members are the nodes that vote on a flat layer 2, by name. Without them,
	// and unless the file lists them, they are left to be filled in.
	Members map[string]netip.AddrPort
	// KeyFile is the file of the gossip key, if there is one already.
	KeyFile string
	// ConfigID selects the lines of keepalived.conf that begin with @: those for this identifier.
	ConfigID string
	// Class is what MetalLB was told by --lb-class, if it was.
	Class string
	// Namespace is the one that Herald runs in where it announces Services, by
	// default DefaultNamespace.
	Namespace string
}

// Row is what becomes of a setting of another program's.
type Row struct {
	// In is the section or kind of object that it is in; Names are those of it and of others
	// that it is true for. Behind a variable of kube-vip's is the flag that sets the same.
	In      string
	Names   []string
	Boolean bool
	// Without Needs the setting does nothing, and nor does it in Herald; its values
	// that are Idle ask for nothing Herald lacks.
	Needs string
	Idle  []string
	// Becomes is Herald's fields; empty if it is not carried over.
	Becomes string
	// ToDo: not to have it takes something away that has to be had otherwise.
	ToDo bool
	// Text says what differs, or why there is no counterpart and what to do instead.
	Text string
}

// Find is the first row of a section that has a name which fits.
func Find(table []Row, in string, fits func(name string) bool) (row Row, found bool) {
	i := slices.IndexFunc(table, func(r Row) bool { return r.In == in && slices.ContainsFunc(r.Names, fits) })
	if i < 0 {
		return Row{}, false
	}
	return table[i], true
}

// Result is what became of a file.
type Result struct {
	// Config is the configuration as YAML, nil if the file had nothing to announce.
	Config []byte
	// Notes are what a human has to know or do, in the order of the input's lines.
	Notes []Note
	// Commands give Services Herald's annotations, from MetalLB's; each is a line for a shell.
	Commands []string
}

// Complete reports whether nothing is left to be done by hand.
func (r *Result) Complete() bool {
	return r.Config != nil && !slices.ContainsFunc(r.Notes, func(n Note) bool { return n.ToDo })
}

// Note is one thing to know about the input.
type Note struct {
	// File and Line are where it is; line 0 is the file as a whole.
	File string
	Line int
	// Subject is the setting it is about, as the input spells it.
	Subject string
	// ToDo marks what has to be done by hand before the change-over; the rest is to be known.
	ToDo bool
	// Text says what is not carried over and why, and what to do instead.
	Text string
}

// String is n on one line, which begins with file:line for editors to follow.
func (n Note) String() string {
	var b strings.Builder
	b.WriteString(n.File)
	if n.Line > 0 {
		fmt.Fprintf(&b, ":%d", n.Line)
	}
	b.WriteString(": ")
	if n.Subject != "" {
		b.WriteString(n.Subject + ": ")
	}
	if n.ToDo {
		b.WriteString("to do: ")
	}
	b.WriteString(n.Text)
	return b.String()
}

// File is one of several.
type File struct {
	// Name is what notes call it.
	Name string
	Data []byte
}

// Notes collects the notes of one file, or of several whose lines are counted on, each once.
type Notes struct {
	File    string
	parts   []part
	lines   int
	notes   []Note
	seen    map[Note]bool
	omitted int
}

// part is where the lines of one of several files begin.
type part struct {
	file  string
	above int
}

// Text is what the next file says, whose lines are counted on from those of the files before it, which are above.
func (l *Notes) Text(f File) (text string, above int, err error) {
	if text, err = yaml.Text(f.Data); err != nil {
		return "", 0, fmt.Errorf("%s: %w", Printable(f.Name), err)
	}
	above = l.lines
	l.parts = append(l.parts, part{Shown(f.Name), above})
	l.lines += strings.Count(text, "\n") + 1
	return text, above, nil
}

// Add says something about a setting on a line.
func (l *Notes) Add(line int, todo bool, subject, format string, args ...any) {
	n := Note{File: l.File, Line: line, Subject: Shown(subject), ToDo: todo, Text: fmt.Sprintf(format, args...)}
	switch {
	case l.seen[n]:
		return
	case len(l.notes) >= MaxNotes:
		l.omitted++
		return
	case l.seen == nil:
		l.seen = map[Note]bool{}
	}
	l.seen[n] = true
	l.notes = append(l.notes, n)
}

// Note says what is not carried over.
func (l *Notes) Note(line int, subject, format string, args ...any) {
	l.Add(line, false, subject, format, args...)
}

// ToDo says what has to be done by hand.
func (l *Notes) ToDo(line int, subject, format string, args ...any) {
	l.Add(line, true, subject, format, args...)
}

// Sorted is all notes by their line, those on the whole file last.
func (l *Notes) Sorted() []Note {
	slices.SortStableFunc(l.notes, func(a, b Note) int {
		if (a.Line == 0) != (b.Line == 0) {
			return cmp.Compare(b.Line, a.Line)
		}
		return cmp.Compare(a.Line, b.Line)
	})
	for i := range l.notes {
		for _, p := range slices.Backward(l.parts) {
			if n := &l.notes[i]; n.Line > p.above {
				n.File, n.Line = p.file, n.Line-p.above
				break
			}
		}
	}
	if l.omitted > 0 {
		l.notes = append(l.notes, Note{File: l.File, ToDo: true, Text: fmt.Sprintf("%d more notes are not shown: is this the right file?", l.omitted)})
	}
	return l.notes
}

// Shown is s for a note or comment: printable, and not endless.
func Shown(s string) string {
	const limit = 80
	s = Printable(s)
	if runes := []rune(s); len(runes) > limit {
		s = string(runes[:limit]) + "…"
	}
	return s
}

// Quoted is what is shown of s, in quotes.
func Quoted(s string) string { return strconv.Quote(Shown(s)) }

// Printable is s on one line, without control characters.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || r == '\ufeff' || r == utf8.RuneError {
			return ' '
		}
		return r
	}, s)
}

// DNSName is s as Herald names VIPs, checks and nodes: lower-case letters and digits with '-' and '.' between; otherwise if nothing is left of it.
func DNSName(s, otherwise string) string {
	s = strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '.' {
			return r
		}
		return '-'
	}, strings.ToLower(s))
	const limit = 50 // leaves room for a suffix
	s = strings.Trim(s[:min(len(s), limit)], "-.")
	return cmp.Or(s, otherwise)
}

// ParseAddr is an address, with or without the length of a prefix, which is the second result.
func ParseAddr(s string) (netip.Addr, int) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return p.Addr().Unmap(), p.Bits()
	}
	addr, err := netip.ParseAddr(s)
	if err != nil || addr.Zone() != "" {
		return netip.Addr{}, 0
	}
	return addr.Unmap(), addr.BitLen()
}
