package kubevip

import (
	"strings"

	"github.com/herald-vip/herald/config/migrate"
)

// word is one of a command line.
type word struct {
	text string
	line int
}

// readFlags gives kube-vip's flags the names of the variables that set the same.
func readFlags(words []word, notes *migrate.Notes) []setting {
	var settings []setting
	rows := Table()
	for i := 0; i < len(words) && len(settings) < maxSettings; i++ {
		w := words[i]
		if !strings.HasPrefix(w.text, "-") {
			continue // the program, or its subcommand
		}
		flag, value, given := strings.Cut(w.text, "=")
		row, known := flagRow(rows, flag)
		switch {
		case given:
		case known && row.Boolean:
			value = "true"
		case i+1 < len(words) && !strings.HasPrefix(words[i+1].text, "--"):
			i++
			value = words[i].text
		}
		if !known {
			notes.Note(w.line, flag, "is no flag that is known here: not carried over")
			continue
		}
		settings = append(settings, setting{name: row.Names[0], value: value, line: w.line})
	}
	return settings
}

// flagRow is the row of a flag as it is written.
func flagRow(rows []migrate.Row, flag string) (migrate.Row, bool) {
	if flag == "-n" {
		flag = "--namespace"
	}
	name, long := strings.CutPrefix(flag, "--")
	for _, row := range rows {
		if long && row.Flag != "" && strings.EqualFold(row.Flag, name) {
			return row, true
		}
	}
	return migrate.Row{}, false
}
