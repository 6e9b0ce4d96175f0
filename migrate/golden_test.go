package migrate

import (
	"errors"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/config"
)

var update = flag.Bool("update", false, "write the golden files and docs/migrating.md anew")

// convert converts a file under testdata as its folder says.
func convert(t *testing.T, file string, o Options) *Result {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	o.File = filepath.Base(file)
	if o.ConfigID == "" {
		o.ConfigID = "m1"
	}
	f := KubeVIP
	if filepath.Base(filepath.Dir(file)) == "keepalived" {
		f = Keepalived
	}
	r, err := f(data, o)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return r
}

func inputs(t *testing.T) []string {
	t.Helper()
	var files []string
	for _, pattern := range []string{"testdata/*/*.yaml", "testdata/*/*.env", "testdata/*/*.conf"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	files = slices.DeleteFunc(files, func(file string) bool { return strings.Contains(file, "/metallb/") })
	if len(files) < 10 {
		t.Fatalf("only %d inputs in testdata", len(files))
	}
	return files
}

// Each input's configuration and notes are as they were; -update writes them anew.
func TestGolden(t *testing.T) {
	for _, file := range inputs(t) {
		t.Run(file, func(t *testing.T) {
			r := convert(t, file, Options{})
			golden(t, file+".herald", string(r.Config))
			golden(t, file+".notes", lines(r.Notes))
			checkHonest(t, r)
		})
	}
}

func lines(notes []Note) string {
	var b strings.Builder
	for _, n := range notes {
		b.WriteString(n.String() + "\n")
	}
	return b.String()
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got), go test ./migrate -update writes it anew:\n%s", file, diff)
	}
}

// checkHonest checks what holds for every input: what is complete is accepted,
// and what Herald refuses has been said to be left open or wrong.
func checkHonest(t *testing.T, r *Result) {
	t.Helper()
	out := string(r.Config)
	if strings.Contains(out+lines(r.Notes), "s3cret") {
		t.Error("a password is printed")
	}
	for _, n := range r.Notes {
		if strings.ContainsAny(n.String(), "\n\r") {
			t.Errorf("a note of several lines: %q", n)
		}
	}
	if r.Config == nil {
		if r.Complete() {
			t.Error("complete without a configuration")
		}
		return
	}
	mistakes := judge(r.Config, node(r))
	if r.Complete() && len(mistakes) > 0 {
		t.Errorf("said to be complete, and refused: %v\n%s", mistakes, out)
	}
	for _, m := range mistakes {
		if !said(r, m) {
			t.Errorf("refused without a word: %v\n%s", m, out)
		}
	}
	if strings.Contains(out, "# FILL IN: ") && (r.Complete() || len(mistakes) == 0) {
		t.Errorf("is to be filled in, and accepted:\n%s", out)
	}
}

// said reports whether a note is about the field that a mistake is in, or what it belongs to.
func said(r *Result, m *config.Error) bool {
	for _, n := range r.Notes {
		if n.ToDo && n.Subject != "" && (strings.HasPrefix(m.Field, n.Subject) || n.Subject == shown(m.Field)) || strings.Contains(n.Text, "more notes") {
			return true
		}
	}
	return false
}

// node is a member's name, if there are members.
func node(r *Result) string {
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

// With the members and the key given, a file of kubeadm's form needs nothing but the script to be compared.
func TestMembers(t *testing.T) {
	o := Options{
		Members: map[string]netip.AddrPort{
			"m1": netip.MustParseAddrPort("10.3.0.1:7946"), "m2": netip.MustParseAddrPort("10.3.0.2:7946"), "m3": netip.MustParseAddrPort("10.3.0.3:7946"),
		},
		KeyFile: "/etc/herald/key",
	}
	r := convert(t, "testdata/kube-vip/arp.yaml", o)
	checkHonest(t, r)
	if !r.Complete() {
		t.Errorf("not complete:\n%s%s", r.Config, lines(r.Notes))
	}
	c, err := config.Parse("", r.Config, config.Hostname("m2"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(o.Members, c.Election.Members, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
	r = convert(t, "testdata/keepalived/unicast.conf", Options{Members: map[string]netip.AddrPort{"m1": o.Members["m1"], "m2": o.Members["m2"]}, KeyFile: "/key"})
	if notes := lines(r.Notes); !strings.Contains(notes, "10.3.0.3: to do: speaks VRRP, and is no member") {
		t.Errorf("a VRRP peer that is no member goes unsaid:\n%s", notes)
	}
}

// All nodes' unicast files become the same members, and each node another of them.
func TestUnicastFilesAgree(t *testing.T) {
	data, err := os.ReadFile("testdata/keepalived/unicast.conf")
	if err != nil {
		t.Fatal(err)
	}
	swap := strings.NewReplacer("10.3.0.1\n", "10.3.0.2\n", "10.3.0.2\n", "10.3.0.1\n")
	var of [2]*config.Config
	for i, s := range []string{string(data), swap.Replace(string(data))} {
		r, err := Keepalived([]byte(s), Options{File: "f"})
		if err != nil {
			t.Fatal(err)
		}
		if of[i], err = config.Parse("", r.Config); err != nil {
			t.Fatal(err)
		}
	}
	same := cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })
	if diff := cmp.Diff(of[0].Election.Members, of[1].Election.Members, same); diff != "" {
		t.Errorf("members of two nodes (-first +second):\n%s", diff)
	}
	if of[0].NodeName != "node-10-3-0-1" || of[1].NodeName != "node-10-3-0-2" {
		t.Errorf("the nodes are %s and %s", of[0].NodeName, of[1].NodeName)
	}
}
