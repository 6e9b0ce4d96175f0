package kubevip

import (
	"strings"
	"testing"

	"github.com/herald-vip/herald/migrate"
)

// A flag and its variable have the same effect.
func TestFlags(t *testing.T) {
	for _, row := range Table() {
		value := "10.3.0.9"
		if row.Boolean {
			value = "true"
		}
		var variable string
		for _, flag := range row.Names {
			if flag[0] != '-' {
				variable = flag
				continue
			}
			var notes migrate.Notes
			for _, words := range [][]*migrate.Tree{
				{{Scalar: "manager", Line: 1}, {Scalar: flag + "=" + value, Line: 2}},
				{{Scalar: "manager", Line: 1}, {Scalar: strings.ToUpper(flag), Line: 2}, {Scalar: value, Line: 3}},
			} {
				got := readFlags(words, Table(), &notes)
				if len(got) != 1 || got[0].name != variable || got[0].value != value || got[0].line != 2 {
					t.Errorf("%v is read as %v", words, got)
				}
			}
		}
	}
}
