package migrate

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
)

// pod is a manifest that runs kube-vip with what is appended to its environment.
const pod = `kind: Pod
spec:
  containers:
  - name: kube-vip
    env:
    - {name: cp_enable, value: "true"}
    - {name: vip_arp, value: "true"}
    - {name: address, value: 10.3.0.100}
`

// What is no text, or too much of it, is refused with one sentence.
func TestUnreadable(t *testing.T) {
	bomb := "a: &a [x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c < 'k'; c++ {
		bomb += fmt.Sprintf("%c: &%[1]c [%s*%[3]c]\n", c, strings.Repeat(fmt.Sprintf("*%c, ", c-1), 8), c-1)
	}
	definitions := "$A=x\n" + strings.Repeat("$A=${A}${A}\n", 50) + strings.Repeat("router_id ${A}\n", 1000)
	for _, test := range []struct {
		name, input         string
		kubeVIP, keepalived string // parts of the errors; "" is none
	}{
		{"binary", "\x7fELF\x00\x01\xff", "not UTF-8", "not UTF-8"},
		{"a zero byte", "kind: Pod\x00", "not UTF-8", "not UTF-8"},
		{"10 MB", strings.Repeat("0123456789\n", 1<<20), "larger than 1 MiB", "larger than 1 MiB"},
		{"deep brackets", strings.Repeat("[", 1000), "line 1 is nested too deeply", ""},
		{"deep braces", strings.Repeat("a {\n", 1000), "", "line 65 is nested too deeply"},
		{"deep entries", strings.Repeat("- ", 1000) + "a", "nested too deeply", ""},
		{"many tokens", strings.Repeat("- a\n", 60_000), "more than 100000 YAML tokens", "more than 10000 statements"},
		{"no YAML", "a: b: c\n", "not valid YAML", ""},
		{"tabs", "a:\n\tb: c\n", "not valid YAML", ""},
		{"aliases of aliases", bomb, "", ""},
		{"definitions of definitions", definitions, "", ""},
		{"many statements", strings.Repeat("a\n", 20_000), "", "more than 10000 statements"},
		{"empty", "", "", ""},
		{"a comment", "# nothing\n", "", ""},
		{"an alias of itself", "kind: &a Pod\nspec: &s\n  containers: *s\n", "", ""},
		{"an alias of nothing", "spec: *nothing\n", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, c := range []struct {
				f    func([]byte, Options) (*Result, error)
				want string
			}{{KubeVIP, test.kubeVIP}, {Keepalived, test.keepalived}} {
				r, err := c.f([]byte(test.input), Options{File: "f"})
				switch {
				case err != nil && (c.want == "" || !strings.Contains(err.Error(), c.want)):
					t.Errorf("error %q, want %q", err, c.want)
				case err != nil && strings.Contains(err.Error(), "\n"):
					t.Errorf("an error of several lines: %q", err)
				case err == nil && c.want != "":
					t.Errorf("read, want an error: %s", c.want)
				case err == nil && (r.Config != nil || r.Complete() || len(r.Notes) == 0):
					t.Errorf("nothing to announce, and this is what came of it: %v\n%s", r.Notes, r.Config)
				}
			}
		})
	}
}

// Wherever an input is cut off, in fifty places of each, what is left of it is read or refused, honestly.
func TestTruncated(t *testing.T) {
	for _, file := range inputs(t) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		f := KubeVIP
		if strings.Contains(file, "keepalived") {
			f = Keepalived
		}
		for n := 0; n < len(data); n += 1 + len(data)/50 {
			if r, err := f(data[:n], Options{File: "f"}); err == nil {
				checkHonest(t, r)
			}
			if t.Failed() {
				t.Fatalf("%s cut off after %d bytes:\n%s", file, n, data[:n])
			}
		}
	}
}

// What an input names in its own words cannot end the line it is put on.
func TestWordsStayOnTheirLine(t *testing.T) {
	input := strings.Replace(pod, "10.3.0.100", `"x\nvips: []\u2028y\u0085z\u0007"`, 1) + `    - {name: "a\nb", value: c}` + "\n"
	r, err := KubeVIP([]byte(input), Options{File: "a\nb: c"})
	if err != nil {
		t.Fatal(err)
	}
	checkHonest(t, r)
	for line := range bytes.Lines(r.Config) {
		if bytes.HasPrefix(line, []byte("vips: []")) || bytes.HasPrefix(line, []byte("b: c")) {
			t.Errorf("the input wrote a line:\n%s", r.Config)
		}
	}
}

// A file with thousands of mistakes is not answered with as many notes.
func TestNotesAreBounded(t *testing.T) {
	r, err := Keepalived([]byte(strings.Repeat("vrrp_instance v { unheard of\n}\n", 4_000)), Options{File: "f"})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(r.Notes); n != maxNotes+1 {
		t.Errorf("%d notes", n)
	}
	if last := r.Notes[len(r.Notes)-1].String(); !strings.Contains(last, "more notes are not shown") {
		t.Errorf("the last note is %s", last)
	}
}
