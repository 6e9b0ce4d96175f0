package kubevip

import (
	"strings"
	"testing"

	"github.com/herald-vip/herald/config/migrate"
)

// Each flag is read as its variable is.
func TestFlags(t *testing.T) {
	for _, row := range Table() {
		if row.Flag == "" {
			continue
		}
		value := "10.3.0.9"
		if row.Boolean {
			value = "true"
		}
		var notes migrate.Notes
		for _, words := range [][]*migrate.Tree{
			{{Scalar: "manager", Line: 1}, {Scalar: "--" + row.Flag + "=" + value, Line: 2}},
			{{Scalar: "manager", Line: 1}, {Scalar: "--" + strings.ToUpper(row.Flag), Line: 2}, {Scalar: value, Line: 3}},
		} {
			got := readFlags(words, Table(), &notes)
			if len(got) != 1 || got[0].name != row.Names[0] || got[0].value != value || got[0].line != 2 {
				t.Errorf("%v is read as %v", words, got)
			}
		}
	}
}
