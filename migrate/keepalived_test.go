package migrate_test

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/migrate"
	"github.com/herald-vip/herald/migrate/keepalived"
)

// A node that speaks VRRP and is none of the members that are given is noted.
func TestKeepalivedMembers(t *testing.T) {
	r := fromKeepalived.read(t, "keepalived/testdata/unicast.conf", migrate.Options{Members: members("m1=10.3.0.1:7946", "m2=10.3.0.2:7946"), KeyFile: "/key"})
	if notes := lines(r.Notes); !strings.Contains(notes, "10.3.0.3: to do: speaks VRRP, and is no member") {
		t.Errorf("a VRRP peer that is no member goes unsaid:\n%s", notes)
	}
}

// All nodes' unicast files become the same members, and each node another of them.
func TestUnicastFilesAgree(t *testing.T) {
	data, err := os.ReadFile("keepalived/testdata/unicast.conf")
	if err != nil {
		t.Fatal(err)
	}
	swap := strings.NewReplacer("10.3.0.1\n", "10.3.0.2\n", "10.3.0.2\n", "10.3.0.1\n")
	var of [2]*config.Config
	for i, s := range []string{string(data), swap.Replace(string(data))} {
		if of[i], err = config.Parse("", fromKeepalived.text(t, s, migrate.Options{}).Config); err != nil {
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

// A file with thousands of mistakes is not answered with as many notes.
func TestNotesAreBounded(t *testing.T) {
	r := fromKeepalived.text(t, strings.Repeat("vrrp_instance v { unheard of\n}\n", 4_000), migrate.Options{})
	if n := len(r.Notes); n != migrate.MaxNotes+1 {
		t.Errorf("%d notes", n)
	}
	if last := r.Notes[len(r.Notes)-1].String(); !strings.Contains(last, "more notes are not shown") {
		t.Errorf("the last note is %s", last)
	}
}

func FuzzKeepalived(f *testing.F) {
	fromKeepalived.fuzz(f, "{", "}", "a {{ } b", `"`, `a "b\`, "$A=${A}", "$A=\\", "@m1 @^m2 a", "~SEQ(a, 1)", "virtual_ipaddress { }",
		"vrrp_script a { script \"curl -o\" }\nvrrp_instance a { track_script { a } virtual_ipaddress { ::1 } }")
}

// The table of TABLES.md is the one of the code, of fields that Herald has.
func TestKeepalivedTable(t *testing.T) {
	table, all := tableOf("keyword", keepalived.Table())
	manual(t, "keepalived", table)
	checkFields(t, 10, all)
}

// Each keyword of keepalived's that is not carried over is noted with its row's words.
func TestEachKeyword(t *testing.T) {
	for _, row := range keepalived.Table() {
		for _, pattern := range row.Names {
			keyword := strings.ReplaceAll(pattern, "*", "x")
			line := keyword + " a b"
			for _, in := range map[string][]string{
				"vrrp_instance": {"vrrp_instance"}, "global_defs": {"global_defs"}, "vrrp_sync_group": {"vrrp_sync_group g"}, "vrrp_script": {"vrrp_script c"},
				"virtual_server": {"virtual_server 10.9.9.9 80"}, "real_server": {"real_server 10.9.9.1 80", "virtual_server 10.9.9.9 80"},
				"TCP_CHECK, HTTP_GET, SSL_GET": {"HTTP_GET", "real_server 10.9.9.1 80", "virtual_server 10.9.9.9 80"},
				"url":                          {"url", "HTTP_GET", "real_server 10.9.9.1 80", "virtual_server 10.9.9.9 80"},
			}[row.In] {
				line = in + " {\n" + line + "\n}"
			}
			r := fromKeepalived.text(t, line+"\nvrrp_instance v {\ntrack_script {\nc\n}\n}\n", migrate.Options{})
			text, todo := noteOn(r, keyword)
			if row.Becomes == "" && (text != row.Text || todo != row.ToDo) {
				t.Errorf("%s in %q: noted as %q, %t, want %q, %t", keyword, row.In, text, todo, row.Text, row.ToDo)
			}
		}
	}
}
