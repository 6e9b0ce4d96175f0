package migrate

import "strings"

// word is one of a command line.
type word struct {
	text string
	line int
}

// readFlags gives kube-vip's flags the names of the variables that set the same.
func readFlags(words []word, notes *noteList) []setting {
	var settings []setting
	table := kubeVIPTable()
	for i := 0; i < len(words) && len(settings) < maxSettings; i++ {
		w := words[i]
		if !strings.HasPrefix(w.text, "-") {
			continue // the program, or its subcommand
		}
		flag, value, given := strings.Cut(w.text, "=")
		row, known := flagRow(table, flag)
		switch {
		case given:
		case known && row.boolean:
			value = "true"
		case i+1 < len(words) && !strings.HasPrefix(words[i+1].text, "--"):
			i++
			value = words[i].text
		}
		if !known {
			notes.note(w.line, flag, "is no flag that is known here: not carried over")
			continue
		}
		settings = append(settings, setting{name: row.env[0], value: value, line: w.line})
	}
	return settings
}

// flagRow is the row of a flag as it is written.
func flagRow(table []kubeVIPRow, flag string) (kubeVIPRow, bool) {
	if flag == "-n" {
		flag = "--namespace"
	}
	name, long := strings.CutPrefix(flag, "--")
	for _, row := range table {
		if long && row.flag != "" && strings.EqualFold(row.flag, name) {
			return row, true
		}
	}
	return kubeVIPRow{}, false
}
