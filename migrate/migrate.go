// Package migrate has the common parts of the converters from other programs: kubevip, keepalived,
// metallb, exabgp and healthchecker.
//
// Converters are pure functions from files to a configuration and notes. They note each setting without
// a counterpart with its line, drop none silently, and mark values that only the user knows with FILL IN.
// Package config validates the result, and each mistake becomes a note.
package migrate

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/herald-vip/herald/internal/text"
	"github.com/herald-vip/herald/internal/yaml"
)

// GossipPort is the port of election members unless another is given.
const GossipPort = 7946

// DefaultNamespace is where Herald runs if it announces Services.
const DefaultNamespace = "herald-system"

// MaxNotes limits the notes of a file.
const MaxNotes = 1000

// Options are settings that the input does not have.
type Options struct {
	// File is the name of the input in notes.
	File string
	// Members are the voters on a flat layer 2, by name. If empty, the input's list is used, or
	// else they are left to the user.
	Members map[string]netip.AddrPort
	// KeyFile is the file of the gossip key, if there is one already.
	KeyFile string
	// ConfigID selects the lines of keepalived.conf that begin with @ and this identifier.
	ConfigID string
	// Class is the value of MetalLB's flag --lb-class, if set.
	Class string
	// Namespace is that of Herald if it announces Services; empty means DefaultNamespace.
	Namespace string
}

// Row describes the conversion of a setting of another program.
type Row struct {
	// In is its section or kind of object. Names are the settings that the row describes; the flag
	// of a kube-vip variable follows it.
	In      string
	Names   []string
	Boolean bool
	// Needs is a setting without which this one has no effect. Idle are values that need no counterpart.
	Needs string
	Idle  []string
	// Becomes lists Herald's fields; empty if there is no counterpart.
	Becomes string
	// ToDo marks a setting that the user must replace in another way.
	ToDo bool
	// Text explains the difference, or the replacement.
	Text string
}

// Find returns the first row of a section with a name that fits.
func Find(table []Row, in string, fits func(name string) bool) (row Row, found bool) {
	i := slices.IndexFunc(table, func(r Row) bool { return r.In == in && slices.ContainsFunc(r.Names, fits) })
	if i < 0 {
		return Row{}, false
	}
	return table[i], true
}

// Result is the result of a conversion.
type Result struct {
	// Config is the configuration as YAML; nil if the input announces nothing.
	Config []byte
	// Notes are for the user, in the order of the input's lines.
	Notes []Note
	// Commands are shell commands that give Services Herald's annotations in place of MetalLB's.
	Commands []string
}

// Complete reports whether nothing is left to do by hand.
func (r *Result) Complete() bool {
	return r.Config != nil && !slices.ContainsFunc(r.Notes, func(n Note) bool { return n.ToDo })
}

// Note is a remark about the input.
type Note struct {
	// File and Line locate it; line 0 means the whole file.
	File string
	Line int
	// Subject is the setting, as the input spells it.
	Subject string
	// ToDo marks work that the user must do before the change-over.
	ToDo bool
	// Text explains the loss and the replacement.
	Text string
}

// String formats n as one line that begins with file:line, so that editors can follow it.
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

// File is an input file.
type File struct {
	// Name is its name in notes.
	Name string
	Data []byte
}

// Notes collects notes, each once. Several files are numbered as one: lines continue from file to file.
type Notes struct {
	File    string
	parts   []part
	lines   int
	notes   []Note
	seen    map[Note]bool
	omitted int
}

// part is a file and the number of lines in the files before it.
type part struct {
	file  string
	above int
}

// Text returns the text of the next file and the number of lines in the files before it.
func (l *Notes) Text(f File) (content string, above int, err error) {
	above = l.lines
	l.parts = append(l.parts, part{text.OneLine(f.Name), above})
	content, err = yaml.Text(f.Data)
	l.lines += strings.Count(content, "\n") + 1
	return content, above, l.wrap(err)
}

// wrap returns an error that names the last file; nil if err is.
func (l *Notes) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", l.parts[len(l.parts)-1].file, err)
}

// Add adds a note on a setting and its line.
func (l *Notes) Add(line int, todo bool, subject, format string, args ...any) {
	n := Note{Line: line, Subject: Shown(subject), ToDo: todo, Text: fmt.Sprintf(format, args...)}
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

// Note adds a note without work for the user.
func (l *Notes) Note(line int, subject, format string, args ...any) {
	l.Add(line, false, subject, format, args...)
}

// ToDo adds a note with work for the user.
func (l *Notes) ToDo(line int, subject, format string, args ...any) {
	l.Add(line, true, subject, format, args...)
}

// Sorted returns all notes by file and line; those on the whole input come last.
func (l *Notes) Sorted() []Note {
	slices.SortStableFunc(l.notes, func(a, b Note) int {
		if (a.Line == 0) != (b.Line == 0) {
			return cmp.Compare(b.Line, a.Line)
		}
		return cmp.Compare(a.Line, b.Line)
	})
	for i := range l.notes {
		n := &l.notes[i]
		n.File, n.Line = l.Locate(n.Line)
	}
	if l.omitted > 0 {
		l.notes = append(l.notes, Note{File: l.File, ToDo: true, Text: fmt.Sprintf("%d more notes are not shown: is this the right file?", l.omitted)})
	}
	return l.notes
}

// Locate returns the file of a line, and its number there.
func (l *Notes) Locate(line int) (file string, number int) {
	for _, p := range slices.Backward(l.parts) {
		if line > p.above {
			return p.file, line - p.above
		}
	}
	return l.File, line
}

// Shown returns s for a note or comment: printable and at most 80 characters.
func Shown(s string) string {
	const limit = 80
	return text.Short(s, limit)
}

// Quoted returns Shown(s) in quotes.
func Quoted(s string) string { return strconv.Quote(Shown(s)) }

// DNSName converts s to a name of a VIP, check or node: lower-case letters, digits, '-' and '.'. It returns
// otherwise if nothing is left.
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

// ParseAddr parses an address with an optional prefix length, the second result. The address is invalid if s is.
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
