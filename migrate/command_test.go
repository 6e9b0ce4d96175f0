package migrate

import (
	"slices"
	"testing"
)

// words splits a command as a shell does, and reports if a shell would do more.
func TestCommandWords(t *testing.T) {
	for _, test := range []struct {
		command string
		words   []string
		plain   bool
	}{
		{"", nil, true},
		{" /bin/a  b\tc ", []string{"/bin/a", "b", "c"}, true},
		{`a "b c" 'd  e'"f" ""`, []string{"a", "b c", "d  ef", ""}, true},
		{`a b\ c "d\"e" '\'`, []string{"a", "b c", `d"e`, `\`}, true},
		{`a '$b|*;d' c`, []string{"a", "$b|*;d", "c"}, true},
		{`a "$b"`, []string{"a", "$b"}, false},
		{"a | b", []string{"a", "|", "b"}, false},
		{"a *.b", []string{"a", "*.b"}, false},
		{"a 'b", []string{"a", "b"}, false},
	} {
		if list, plain := words(test.command); !slices.Equal(list, test.words) || plain != test.plain {
			t.Errorf("%s: %q, plain %t, want %q, %t", test.command, list, plain, test.words, test.plain)
		}
	}
}

// Any command becomes either one check or a problem.
func FuzzCommand(f *testing.F) {
	for _, s := range []string{
		"curl -sf http://127.0.0.1/", "curl -o", "curl http://u:p@h/", "nc -z h 1", "nc -w", "</dev/tcp/::1/1", "bash -c '</dev/tcp/a/1'", "check_apiserver.sh", "sh -c", "curl -k https://[::1", "curl --cacert",
		`/bin/a "b c" '$d' \\e`, "/bin/a $b", "/bin/a 'b", "/usr/bin/curl -H a http://b/",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, command string) {
		s, problem := readCommand(command)
		kinds := 0
		for _, present := range []bool{s.check.HTTP != nil, s.check.TCP != nil, s.check.Exec != nil} {
			if present {
				kinds++
			}
		}
		if kinds > 1 || (kinds == 0) == (problem == "") {
			t.Errorf("%d kinds of checks, problem %q: %+v", kinds, problem, s.check)
		}
	})
}
