package electorate

import (
	"slices"
	"strings"
	"testing"
)

func TestChoose(t *testing.T) {
	long := strings.Repeat("x", 240)
	for _, x := range []struct{ name, members, leave, join, want string }{
		{"alone", "a", "", "", "a"},
		{"the second waits for the third", "a", "", "b", "a"},
		{"the third comes with the second", "a", "", "b c", "a b c"},
		{"the fourth stands by", "a b c", "", "d", "a b c"},
		{"five", "a b c", "", "e d", "a b c d e"},
		{"one takes the place of another", "a b c", "b", "d", "a c d"},
		{"the first that joins is preferred", "a b c", "b", "z d", "a c z"},
		{"who leaves an even number stays", "a b c", "c", "", "a b c"},
		{"one of two that leave stays", "a b c d", "c d", "", "a b c"},
		{"two leave", "a b c d e", "d e", "", "a b c"},
		{"a removal may leave two", "a b", "", "", "a b"},
		{"seven at most", "a b c d e", "", "f g h i", "a b c d e f g"},
		{"more that vote already stay", "a b c d e f g h i", "", "j k", "a b c d e f g h i"},
		{"as many as fit one message", "a" + long + " b" + long, "", "c d" + long, "a" + long + " b" + long + " c"},
	} {
		e := electorateOf(x.members)
		if got := e.Choose(strings.Fields(x.leave), strings.Fields(x.join)); !slices.Equal(got.Members, strings.Fields(x.want)) || got.Duration != e.Duration {
			t.Errorf("%s: %v, want %s", x.name, got, x.want)
		}
		if !slices.Equal(e.Members, strings.Fields(x.members)) {
			t.Errorf("%s: the previous electorate has changed", x.name)
		}
	}
}
