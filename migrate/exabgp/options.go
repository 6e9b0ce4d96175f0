package exabgp

import (
	"path"
	"slices"
	"strings"

	"github.com/herald-vip/herald/migrate"
)

// healthcheck returns the arguments of ExaBGP's healthcheck; ok is false if words do not start it.
func healthcheck(words []string) (args []string, ok bool) {
	for i, w := range words {
		switch base := path.Base(w); {
		case slices.Contains([]string{"healthcheck", "healthcheck.py", "exabgp.application.healthcheck"}, base):
			return words[i+1:], true
		case !strings.HasPrefix(base, "python") && !strings.HasPrefix(w, "-") && !slices.Contains([]string{"exabgp", "env", "sudo"}, base):
			return nil, false
		}
	}
	return nil, false
}

// options returns the options of a command line as the block of a statement. The options in its
// --config file come first.
func (e *converter) options(words []string, line int) *migrate.Statement {
	o := &migrate.Statement{Line: line, Block: e.args(words, line)}
	file := o.Setting("--config", "")
	if file.Line == 0 {
		return o
	}
	i := slices.IndexFunc(e.files, func(f text) bool { return path.Base(f.name) == path.Base(file.Value) })
	if i < 0 {
		e.ToDo(file.Line, file.Name, "the file was not read: pass %s after the first file and migrate again", migrate.Quoted(file.Value))
		return o
	}
	var block []*migrate.Statement
	number := e.files[i].above
	for line := range strings.Lines(e.files[i].text) {
		number++
		name, value, given := strings.Cut(strings.TrimSpace(line), "=")
		words := []string{"--" + strings.TrimSpace(name)}
		if given {
			words[0] += "=" + strings.TrimSpace(value)
		}
		if name != "" && name[0] != '#' {
			block = append(block, e.args(words, number)...)
		}
	}
	o.Block = append(block, o.Block...)
	return o
}

// args converts options to statements, by the first name of their row, and notes those without counterpart.
func (e *converter) args(words []string, line int) (out []*migrate.Statement) {
	for i := 0; i < len(words); i++ {
		name, value, given := strings.Cut(words[i], "=")
		if !strings.HasPrefix(name, "-") {
			e.ToDo(line, "", "healthcheck takes options only, and this line has other words: check them") // not shown: one may be a password
			continue
		}
		row, known := migrate.Find(e.table, inOption, func(n string) bool { return n == name })
		if known && !row.Boolean && !given && i+1 < len(words) && !strings.HasPrefix(words[i+1], "-") {
			i++
			value = words[i]
		}
		s := &migrate.Statement{Line: line, Words: []string{name, value}}
		e.LeftOut(e.table, inOption, []*migrate.Statement{s})
		if known && row.Becomes != "" {
			s.Words[0] = row.Names[0]
			out = append(out, s)
		}
	}
	return out
}
