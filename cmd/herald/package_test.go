package main

//go:generate go test -run TestPackageFiles -update .

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/herald-vip/herald/testenv/must"
)

var update = flag.Bool("update", false, "write the files of manifests/package that herald prints or that tell of its commands anew")

// TestPackageFiles checks that the manual pages, completion and unit in the deb and the rpm are current, and that each
// page has a command.
func TestPackageFiles(t *testing.T) {
	const folder = "../../manifests/package"
	prints := func(args ...string) string {
		code, out, stderr := run(t, herald(t, args...))
		if code != 0 {
			t.Fatalf("%q: %s", args, stderr)
		}
		return out
	}
	want := map[string]string{
		"herald.service":         prints("manifest", "systemd", "--binary", "/usr/bin/herald"),
		"completion/herald.bash": prints("completion", "bash"),
		"completion/herald.fish": prints("completion", "fish"),
		// zsh calls it as a function when it is first asked, so it has to answer, too.
		"completion/_herald": "#compdef herald\nautoload -U +X bashcompinit && bashcompinit\n_bash_complete -o default -o bashdefault -C herald\n",
	}
	model := newParser().Model
	want["man/herald.1"] = page(model.Node)
	for _, command := range visible(model.Node) {
		want["man/herald-"+command.Name+".1"] = page(command)
	}
	if *update {
		for _, dir := range []string{"man", "completion"} {
			must.Do(t, os.RemoveAll(filepath.Join(folder, dir)))
			must.Do(t, os.Mkdir(filepath.Join(folder, dir), 0o755))
		}
		for name, text := range want {
			must.Do(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644))
		}
	}
	for name, text := range want {
		if got, err := os.ReadFile(filepath.Join(folder, name)); err != nil || string(got) != text {
			t.Errorf("%s is not current (%v): go generate ./cmd/herald", name, err)
		}
	}
	pages := must.Get[[]string](t)(filepath.Glob(folder + "/man/*"))
	for _, page := range pages {
		if name := "man/" + filepath.Base(page); want[name] == "" {
			t.Errorf("%s is of no command: there is %q", name, slices.Sorted(maps.Keys(want)))
		}
	}
}

// TestPackagedFile checks that the configuration in the packages is refused at each place to edit, and accepted once
// they are edited.
func TestPackagedFile(t *testing.T) {
	const packaged = "../../manifests/package/herald.yaml"
	code, _, stderr := run(t, herald(t, "validate", "--config", packaged))
	if code != exitUsage || strings.Count(stderr, `got the text "EDIT"`) != 3 || strings.Count(stderr, "\n") != 3 {
		t.Errorf("validate ended with %d and said\n%s", code, stderr)
	}
	text := must.Get[[]byte](t)(os.ReadFile(packaged))
	edited := strings.NewReplacer("[EDIT]", "[10.99.0.10]", "address: EDIT", "address: 10.0.1.254", "asn: EDIT", "asn: 64500", "/etc/kubernetes/pki/ca.crt", "/no/ca.crt").Replace(string(text))
	file := filepath.Join(t.TempDir(), "herald.yaml")
	must.Do(t, os.WriteFile(file, []byte(edited), 0o600))
	if code, _, stderr = run(t, herald(t, "validate", "--config", file)); code != 0 {
		t.Errorf("once it is edited validate ended with %d and said\n%s", code, stderr)
	}
}

// visible are the commands of a command that are shown.
func visible(n *kong.Node) []*kong.Node {
	return slices.DeleteFunc(slices.Clone(n.Children), func(c *kong.Node) bool { return c.Hidden })
}

// page is the manual page of a command, or of herald itself, with the commands below it.
func page(n *kong.Node) string {
	var b strings.Builder
	name := strings.ReplaceAll(n.FullPath(), " ", "-")
	fmt.Fprintf(&b, ".\\\" Made by go generate ./cmd/herald; do not edit.\n.TH %s 1 \"\" Herald\n.SH NAME\n%s \\- %s\n", roff(strings.ToUpper(name)), roff(name), roff(strings.TrimSuffix(n.Help, ".")))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", roff("herald "+strings.TrimSpace(n.Summary())))
	if n.Type == kong.ApplicationNode {
		b.WriteString(".SH COMMANDS\n")
		for _, c := range visible(n) {
			fmt.Fprintf(&b, ".TP\n.BR herald\\-%s (1)\n%s\n", roff(c.Name), roff(c.Help))
		}
		writeFlags(&b, n, ".SH OPTIONS\n")
		b.WriteString(".SH EXIT STATUS\n0, or 1 if it failed, 2 for wrong usage or a configuration that is not valid, 3 if a conversion leaves something to do by hand.\n" +
			".SH FILES\n.TP\n.I /etc/herald/herald.yaml\nThe configuration.\n.TP\n.I /var/lib/herald\nWhat is remembered: a drain, the electorate.\n" +
			".SH SEE ALSO\nhttps://github.com/herald\\-vip/herald/tree/main/docs\n")
		return b.String()
	}
	writeFlags(&b, n, ".SH OPTIONS\n")
	for _, c := range n.Leaves(true) {
		if c == n {
			continue
		}
		fmt.Fprintf(&b, ".SH %s\n%s\n.PP\n.B %s\n", roff(strings.ToUpper(strings.TrimPrefix(c.Path(), n.Path()+" "))), roff(c.Help), roff("herald "+c.Summary()))
		writeFlags(&b, c, "")
	}
	b.WriteString(".SH SEE ALSO\n.BR herald (1)\n")
	return b.String()
}

// writeFlags writes arguments and flags, under a heading if there are any.
func writeFlags(b *strings.Builder, n *kong.Node, heading string) {
	item := func(what, help string) {
		fmt.Fprintf(b, "%s.TP\n.B %s\n%s\n", heading, roff(what), roff(cmp.Or(help, "See herald --help.")))
		heading = ""
	}
	for _, a := range n.Positional {
		item(a.Summary(), a.Help)
	}
	for _, f := range n.Flags {
		if !f.Hidden {
			item(f.String(), f.Help)
		}
	}
}

// roff is text that stands for itself in a manual page.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n", " ").Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}
