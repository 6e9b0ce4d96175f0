package migrate_test

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/migrate"
	"github.com/herald-vip/herald/migrate/exabgp"
	"github.com/herald-vip/herald/migrate/healthchecker"
	"github.com/herald-vip/herald/migrate/keepalived"
	"github.com/herald-vip/herald/migrate/kubevip"
	"github.com/herald-vip/herald/migrate/metallb"
	"github.com/herald-vip/herald/testenv/must"
)

var update = flag.Bool("update", false, "write the golden files and TABLES.md anew")

// converter converts the files of a tool.
type converter struct {
	name, title string // of the folder, and in TABLES.md
	convert     func([]migrate.File, migrate.Options) (*migrate.Result, error)
	table       func() []migrate.Row
	least       int // fields in the table
	honest      func(*testing.T, *migrate.Result)
}

var (
	fromKubeVIP    = converter{"kubevip", "kube-vip", kubevip.Convert, kubevip.Table, 15, checkHonest}
	fromKeepalived = converter{"keepalived", "keepalived", keepalived.Convert, keepalived.Table, 10, checkHonest}
	fromMetalLB    = converter{"metallb", "MetalLB", metallb.Convert, metallb.Table, 30, checkHonestResources}
	fromExaBGP     = converter{"exabgp", "ExaBGP", exabgp.Convert, exabgp.Table, 30, checkHonest}
	fromAnycast    = converter{"healthchecker", "anycast-healthchecker", healthchecker.Convert, healthchecker.Table, 9, checkHonest}
)

// all lists the converters.
func all() []converter {
	return []converter{fromKubeVIP, fromKeepalived, fromMetalLB, fromExaBGP, fromAnycast}
}

// file converts one file, named f by default.
func (c converter) file(data []byte, o migrate.Options) (*migrate.Result, error) {
	o.File = cmp.Or(o.File, "f")
	return c.convert([]migrate.File{{Name: o.File, Data: data}}, o)
}

// read converts a file.
func (c converter) read(t *testing.T, file string, o migrate.Options) *migrate.Result {
	t.Helper()
	data := must.Get[[]byte](t)(os.ReadFile(file))
	o.File = filepath.Base(file)
	if o.ConfigID == "" {
		o.ConfigID = "m1"
	}
	return c.text(t, string(data), o)
}

// text converts the text of a file, named f by default.
func (c converter) text(t *testing.T, input string, o migrate.Options) *migrate.Result {
	t.Helper()
	r, err := c.file([]byte(input), o)
	must.Do(t, err)
	return r
}

// inputs returns the files in testdata; it fails if there are too few.
func (c converter) inputs(t testing.TB) []string {
	t.Helper()
	var files []string
	for _, ending := range []string{"yaml", "env", "conf"} {
		found := must.Get[[]string](t)(filepath.Glob(c.name + "/testdata/*." + ending))
		files = append(files, found...)
	}
	if len(files) < 4 {
		t.Fatalf("only %d inputs in testdata", len(files))
	}
	return files
}

// The configuration, notes and commands of each input equal the golden files; -update rewrites those.
func TestGolden(t *testing.T) {
	for _, c := range all() {
		for _, file := range c.inputs(t) {
			t.Run(file, func(t *testing.T) {
				r := c.read(t, file, migrate.Options{})
				golden(t, file+".herald", string(r.Config))
				golden(t, file+".notes", lines(r.Notes)+strings.Join(append(r.Commands, ""), "\n"))
				c.honest(t, r)
			})
		}
	}
}

// Inputs truncated at fifty places are converted or refused, and checkHonest holds.
func TestTruncated(t *testing.T) {
	for _, c := range all() {
		for _, file := range c.inputs(t) {
			data := must.Get[[]byte](t)(os.ReadFile(file))
			for n := 0; n < len(data); n += 1 + len(data)/50 {
				if r, err := c.file(data[:n], migrate.Options{}); err == nil {
					c.honest(t, r)
				}
				if t.Failed() {
					t.Fatalf("%s cut off after %d bytes:\n%s", file, n, data[:n])
				}
			}
		}
	}
}

// Invalid and oversized files are refused with one sentence; empty ones announce nothing.
func TestRefused(t *testing.T) {
	ofYAML := []converter{fromKubeVIP, fromMetalLB}
	definitions := "$A=x\n" + strings.Repeat("$A=${A}${A}\n", 50) + strings.Repeat("router_id ${A}\n", 1000)
	for _, test := range []struct {
		name, input, want string
		by                []converter
	}{
		{"binary", "\x7fELF\x00\x01\xff", "not UTF-8", all()},
		{"a zero byte", "kind: Pod\x00", "not UTF-8", all()},
		{"10 MB", strings.Repeat("0123456789\n", 1<<20), "larger than 1 MiB", all()},
		{"empty", "", "", all()},
		{"a comment", "# nothing\n", "", all()},
		{"deep brackets", strings.Repeat("[", 1000), "line 1: nested too deeply", ofYAML},
		{"deep entries", strings.Repeat("- ", 1000) + "a", "nested too deeply", ofYAML},
		{"many tokens", strings.Repeat("- a\n", 80_000), "the limit of 150000 YAML tokens", ofYAML},
		{"no YAML", "a: b: c\n", "line 1: not valid YAML", ofYAML},
		{"tabs", "a:\n\tb: c\n", "not valid YAML", ofYAML},
		{"aliases of aliases", bomb(), "aliases of aliases", ofYAML},
		{"an alias of itself", "kind: &a Pod\nspec: &s\n  containers: *s\n", "aliases of aliases", ofYAML},
		{"an alias of itself in a list", "spec: &a [*a]\n", "aliases of aliases", ofYAML},
		{"an alias of nothing", "spec: *nothing\n", "", ofYAML},
		{"aliases within", "kind: ConfigMap\ndata:\n  config: |\n    " + strings.ReplaceAll(bomb(), "\n", "\n    "), "aliases of aliases", []converter{fromMetalLB}},
		{"deep brackets", strings.Repeat("[", 1000), "", []converter{fromKeepalived}},
		{"deep braces", strings.Repeat("a {\n", 1000), "line 65 is nested too deeply", []converter{fromKeepalived, fromExaBGP}},
		{"many lines", strings.Repeat("- a\n", 60_000), "more than 10000 statements", []converter{fromKeepalived}},
		{"no blocks", "a: b: c\n", "", []converter{fromKeepalived, fromExaBGP, fromAnycast}},
		{"many statements", strings.Repeat("a;\n", 20_000), "more than 10000 statements", []converter{fromExaBGP}},
		{"definitions of definitions", definitions, "", []converter{fromKeepalived}},
		{"many statements", strings.Repeat("a\n", 20_000), "more than 10000 statements", []converter{fromKeepalived}},
	} {
		for _, c := range test.by {
			t.Run(c.name+" "+test.name, func(t *testing.T) {
				r, err := c.file([]byte(test.input), migrate.Options{})
				switch {
				case err != nil && (test.want == "" || !strings.Contains(err.Error(), test.want)):
					t.Errorf("error %q, want %q", err, test.want)
				case err != nil && strings.Contains(err.Error(), "\n"):
					t.Errorf("an error of several lines: %q", err)
				case err == nil && test.want != "":
					t.Errorf("no error, want: %s", test.want)
				case err == nil && (r.Config != nil || r.Complete() || len(r.Notes) == 0):
					t.Errorf("nothing to announce, but: %v\n%s", r.Notes, r.Config)
				}
			})
		}
	}
}

// fuzz checks any input with and without members: checkHonest holds, and the result is deterministic.
func (c converter) fuzz(f *testing.F, seeds ...string) {
	for _, file := range c.inputs(f) {
		data := must.Get[[]byte](f)(os.ReadFile(file))
		f.Add(string(data))
	}
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, input string) {
		o := migrate.Options{ConfigID: "m1"}
		r, err := c.file([]byte(input), o)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\r") {
				t.Errorf("an error of several lines: %q", err)
			}
			return
		}
		if !strings.Contains(input, "s3cret") { // the input may use it as a name
			c.honest(t, r)
		}
		o.Members = members("m1=10.3.0.1:7946")
		o.KeyFile = "/key"
		with := c.text(t, input, o)
		if again := c.text(t, input, o); gocmp.Diff(with, again) != "" {
			t.Errorf("the second conversion differs:\n%s", gocmp.Diff(with, again))
		}
		if !strings.Contains(input, "s3cret") {
			c.honest(t, with)
		}
	})
}

// members parses NAME=ADDRESS:PORT.
func members(list ...string) map[string]netip.AddrPort {
	out := map[string]netip.AddrPort{}
	for _, s := range list {
		name, addr, _ := strings.Cut(s, "=")
		out[name] = netip.MustParseAddrPort(addr)
	}
	return out
}

// lines returns the notes as printed.
func lines(notes []migrate.Note) string {
	var b strings.Builder
	for _, n := range notes {
		b.WriteString(n.String() + "\n")
	}
	return b.String()
}

// golden compares got with a golden file.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		must.Do(t, os.WriteFile(file, []byte(got), 0o644))
		return
	}
	want := must.Get[[]byte](t)(os.ReadFile(file))
	if diff := gocmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got), go test ./migrate -update rewrites it:\n%s", file, diff)
	}
}

// checkSaid checks that each note and command is one line, and no password is printed.
func checkSaid(t *testing.T, r *migrate.Result) {
	t.Helper()
	if strings.Contains(string(r.Config)+lines(r.Notes)+strings.Join(r.Commands, "\n"), "s3cret") {
		t.Error("a password is printed")
	}
	for _, n := range r.Notes {
		if strings.ContainsAny(n.String(), "\n\r") {
			t.Errorf("a note of several lines: %q", n)
		}
	}
	for _, c := range r.Commands {
		if strings.ContainsAny(c, "\n\r") {
			t.Errorf("a command of several lines: %q", c)
		}
	}
}

// checkHonest checks the result of any input: Herald accepts a complete one, and a note names each mistake
// of another.
func checkHonest(t *testing.T, r *migrate.Result) {
	t.Helper()
	out := string(r.Config)
	checkSaid(t, r)
	if r.Config == nil {
		if r.Complete() {
			t.Error("complete without a configuration")
		}
		return
	}
	mistakes := migrate.Validate(r.Config, node(r))
	if r.Complete() && len(mistakes) > 0 {
		t.Errorf("complete, but refused: %v\n%s", mistakes, out)
	}
	for _, m := range mistakes {
		if !said(r, m) {
			t.Errorf("refused without a note: %v\n%s", m, out)
		}
	}
	if strings.Contains(out, "# FILL IN: ") && (r.Complete() || len(mistakes) == 0) {
		t.Errorf("has open fields, but is accepted:\n%s", out)
	}
}

// said reports whether a note names the field of a mistake, or a field around it.
func said(r *migrate.Result, m *config.Error) bool {
	for _, n := range r.Notes {
		if n.ToDo && n.Subject != "" && (strings.HasPrefix(m.Field, n.Subject) || n.Subject == migrate.Shown(m.Field)) || strings.Contains(n.Text, "more notes") {
			return true
		}
	}
	return false
}

// node returns the name of a member, or another name without members.
func node(r *migrate.Result) string {
	c, err := config.Parse("", r.Config, config.Hostname("node"))
	if err == nil {
		return c.NodeName
	}
	var mistakes config.Errors
	if errors.As(err, &mistakes) {
		for _, m := range mistakes {
			if m.Field == "election.members" && strings.HasPrefix(m.Message, "lacks this node") {
				return "m1"
			}
		}
	}
	return "node"
}

// manual compares a table of TABLES.md with that in the code; -update rewrites it.
func manual(t *testing.T, name, table string) {
	t.Helper()
	const manual = "TABLES.md"
	data := must.Get[[]byte](t)(os.ReadFile(manual))
	begin := "<!-- The table of " + name + " is written by go test ./migrate -update. -->\n"
	before, rest, ok := strings.Cut(string(data), begin)
	old, after, ok2 := strings.Cut(rest, "<!-- end -->")
	if !ok || !ok2 {
		t.Fatalf("no place for the table of %s in %s", name, manual)
	}
	if *update {
		must.Do(t, os.WriteFile(manual, []byte(before+begin+table+"<!-- end -->"+after), 0o644))
	} else if diff := gocmp.Diff(table, old); diff != "" {
		t.Errorf("the table of %s differs (-code +manual), go test ./migrate -update rewrites it:\n%s", name, diff)
	}
}

// The tables in TABLES.md equal those in the code, and their fields exist.
func TestTables(t *testing.T) {
	quoted := regexp.MustCompile("`([^`]+)`")
	for _, c := range all() {
		rows := slices.DeleteFunc(c.table(), func(r migrate.Row) bool { return r.Becomes == "" }) // reported by the command
		var b strings.Builder
		b.WriteString("| in | setting | becomes | |\n|---|---|---|---|\n")
		found := 0
		for _, row := range rows {
			in := strings.ReplaceAll("`"+row.In+"`", "``", "the file")
			fmt.Fprintf(&b, "| %s | `%s` | %s | %s |\n", in, strings.Join(row.Names, "`, `"), row.Becomes, row.Text)
			for _, m := range quoted.FindAllStringSubmatch(row.Becomes, -1) {
				path, _, _ := strings.Cut(m[1], ":")
				if !c.hasField(row.In, strings.Split(strings.ReplaceAll(path, "[]", ""), ".")) {
					t.Errorf("Herald has no field %s for %s of %s", m[1], row.Names, c.title)
				}
				found++
			}
		}
		manual(t, c.title, b.String())
		if found < c.least {
			t.Errorf("only %d fields in the table of %s", found, c.title)
		}
	}
}

// hasField reports whether the configuration, or the resource in place of an object of MetalLB's kind in, has a field
// with this path.
func (c converter) hasField(in string, path []string) bool {
	switch {
	case c.name != "metallb":
		return hasField(reflect.TypeFor[config.Config](), "yaml", path)
	case in == "Service": // annotations
		return true
	case in == "BGPPeer" || in == "BFDProfile":
		return hasField(reflect.TypeFor[v1alpha1.Peer](), "json", path)
	}
	return hasField(reflect.TypeFor[v1alpha1.AddressPoolSpec](), "json", path)
}

// hasField reports whether t has a field with this path of tag names.
func hasField(t reflect.Type, tag string, path []string) bool {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if len(path) == 0 {
		return true
	}
	if t.Kind() != reflect.Struct {
		return false
	}
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get(tag), ",")
		if options == "inline" && hasField(f.Type, tag, path) || name == path[0] && hasField(f.Type, tag, path[1:]) {
			return true
		}
	}
	return false
}

// checkNoted checks that a note on the subject has the text of a row without a counterpart.
func checkNoted(t *testing.T, row migrate.Row, subject string, r *migrate.Result) {
	t.Helper()
	i := slices.IndexFunc(r.Notes, func(n migrate.Note) bool { return n.Subject == subject })
	if row.Becomes == "" && (i < 0 || r.Notes[i].Text != row.Text || r.Notes[i].ToDo != row.ToDo) {
		t.Errorf("%s in %q: not noted as %q, %t:\n%s", subject, row.In, row.Text, row.ToDo, lines(r.Notes))
	}
}

// checkEffect checks the effect of a setting: it changes the configuration if its row says so; otherwise it is noted.
func checkEffect(t *testing.T, row migrate.Row, subject string, before, after *migrate.Result) {
	t.Helper()
	if changed := string(before.Config) != string(after.Config); changed != (row.Becomes != "") {
		t.Errorf("%s in %q: changes the configuration: %t\n%s", subject, row.In, changed, gocmp.Diff(string(before.Config), string(after.Config)))
	}
	checkNoted(t, row, subject, after)
}

// bomb is a small document with aliases for billions of values.
func bomb() string {
	bomb := "a: &a [x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c < 'k'; c++ {
		bomb += fmt.Sprintf("%c: &%[1]c [%s*%[3]c]\n", c, strings.Repeat(fmt.Sprintf("*%c, ", c-1), 8), c-1)
	}
	return bomb
}
