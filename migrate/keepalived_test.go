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
	"github.com/herald-vip/herald/testenv/must"
)

// A VRRP peer that is not among the given members is noted.
func TestKeepalivedMembers(t *testing.T) {
	r := fromKeepalived.read(t, "keepalived/testdata/unicast.conf", migrate.Options{Members: members("m1=10.3.0.1:7946", "m2=10.3.0.2:7946"), KeyFile: "/key"})
	if notes := lines(r.Notes); !strings.Contains(notes, "10.3.0.3: to do: speaks VRRP but is not a member") {
		t.Errorf("no note on a VRRP peer that is not a member:\n%s", notes)
	}
}

// The unicast files of all nodes give the same members, and different node names.
func TestUnicastFilesAgree(t *testing.T) {
	data := must.Get[[]byte](t)(os.ReadFile("keepalived/testdata/unicast.conf"))
	swap := strings.NewReplacer("10.3.0.1\n", "10.3.0.2\n", "10.3.0.2\n", "10.3.0.1\n")
	var nodes [2]*config.Config
	for i, s := range []string{string(data), swap.Replace(string(data))} {
		nodes[i] = must.Get[*config.Config](t)(config.Parse("", fromKeepalived.text(t, s, migrate.Options{}).Config))
	}
	same := cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })
	if diff := cmp.Diff(nodes[0].Election.Members, nodes[1].Election.Members, same); diff != "" {
		t.Errorf("members of two nodes (-first +second):\n%s", diff)
	}
	if nodes[0].NodeName != "node-10-3-0-1" || nodes[1].NodeName != "node-10-3-0-2" {
		t.Errorf("the nodes are %s and %s", nodes[0].NodeName, nodes[1].NodeName)
	}
}

// The number of notes is limited.
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

// For each keyword of keepalived that is not carried over, a note has its row's text.
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
			checkNoted(t, row, keyword, r)
		}
	}
}
