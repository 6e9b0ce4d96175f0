package migrate

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/config"
)

const manual = "../docs/migrating.md"

// The tables of docs/migrating.md are those of the code; -update writes them anew.
func TestManualHasTheTables(t *testing.T) {
	data, err := os.ReadFile(manual)
	if err != nil {
		t.Fatal(err)
	}
	doc := string(data)
	for name, table := range map[string]string{"kube-vip": kubeVIPManual(), "keepalived": keepalivedManual(), "MetalLB": metalLBManual()} {
		begin := "<!-- The table of " + name + " is written by go test ./migrate -update. -->\n"
		before, rest, ok := strings.Cut(doc, begin)
		old, after, ok2 := strings.Cut(rest, "<!-- end -->")
		if !ok || !ok2 {
			t.Fatalf("no place for the table of %s in %s", name, manual)
		}
		if diff := cmp.Diff(table, old); diff != "" && !*update {
			t.Errorf("the table of %s is another (-code +manual), go test ./migrate -update writes it anew:\n%s", name, diff)
		}
		doc = before + begin + table + "<!-- end -->" + after
	}
	if *update {
		if err := os.WriteFile(manual, []byte(doc), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func kubeVIPManual() string {
	var b strings.Builder
	b.WriteString("| variable | flag | becomes | |\n|---|---|---|---|\n")
	for _, row := range kubeVIPTable() {
		flag := ""
		if row.flag != "" {
			flag = "`--" + row.flag + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", strings.Join(row.env, "`, `"), flag, orNothing(row.becomes), row.text)
	}
	return b.String()
}

func keepalivedManual() string {
	var b strings.Builder
	b.WriteString("| in | keyword | becomes | |\n|---|---|---|---|\n")
	for _, row := range keepalivedTable() {
		in := "the file"
		if row.in != atTop {
			in = "`" + row.in + "`"
		}
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s |\n", in, strings.Join(row.keywords, "`, `"), orNothing(row.becomes), row.text)
	}
	return b.String()
}

func orNothing(becomes string) string {
	if becomes == "" {
		return "–"
	}
	return becomes
}

// What settings become are fields that Herald has.
func TestFieldsExist(t *testing.T) {
	var all []string
	for _, row := range kubeVIPTable() {
		all = append(all, row.becomes)
	}
	for _, row := range keepalivedTable() {
		all = append(all, row.becomes)
	}
	quoted := regexp.MustCompile("`([^`]+)`")
	found := 0
	for _, becomes := range all {
		for _, m := range quoted.FindAllStringSubmatch(becomes, -1) {
			path, _, _ := strings.Cut(m[1], ":")
			if !hasField(reflect.TypeFor[config.Config](), strings.Split(strings.ReplaceAll(path, "[]", ""), ".")) {
				t.Errorf("Herald has no field %s", m[1])
			}
			found++
		}
	}
	if found < 20 {
		t.Errorf("only %d fields in the tables", found)
	}
}

func hasField(t reflect.Type, path []string) bool {
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
		if f.Tag.Get("yaml") == path[0] {
			return hasField(f.Type, path[1:])
		}
	}
	return false
}

// Each setting of kube-vip's does what its row says: it changes the
// configuration, or it is noted with the row's words.
func TestEachSettingOfKubeVIP(t *testing.T) {
	values := map[string]string{ // of those that change the configuration, unlike the base's
		"address": "10.3.0.9", "vip_address": "10.3.0.8", "vip_interface": "eth9", "port": "7443",
		"kubernetes_addr": "https://127.0.0.1:6444", "control_plane_health_check_address": "https://127.0.0.1:6445/livez",
		"control_plane_health_check_ca_path": "/ca", "vip_nodename": "m7", "prometheus_server": ":9", "vip_arpRate": "2000",
		"bgp_as": "1", "bgp_routerid": "1.2.3.4", "bgp_peers": "10.0.0.9:65000", "bgp_peeraddress": "10.0.0.8", "bgp_peeras": "2",
		"bgp_peerpass": "s3cret", "bgp_multihop": "true", "bgp_sourceip": "10.0.0.1", "bgp_hold_time": "9",
		"mpbgp_nexthop": "auto_sourceif", "mpbgp_ipv4": "10.0.0.7", "mpbgp_ipv6": "fd00::7",
		"lb_enable": "true", "lb_port": "8443", "cp_enable": "false", "vip_arp": "true", "bgp_enable": "false", "vip_leaderelection": "",
	}
	names := map[string]bool{}
	for _, row := range kubeVIPTable() {
		names[row.env[0]] = true
	}
	for _, row := range kubeVIPTable() {
		for _, name := range row.env {
			env := map[string]string{"cp_enable": "true", "bgp_enable": "true", "address": "10.3.0.100", "bgp_peeraddress": "10.0.0.254", "bgp_as": "65001"}
			switch name {
			case "vip_address":
				delete(env, "address")
			case "vip_arpRate", "lb_enable", "lb_port":
				delete(env, "bgp_enable")
				env["vip_arp"] = "true"
			case "control_plane_health_check_ca_path":
				env["control_plane_health_check_address"] = "https://127.0.0.1/"
			case "mpbgp_ipv4", "mpbgp_ipv6":
				env["mpbgp_nexthop"] = "fixed"
			}
			if row.needs != "" {
				if !names[row.needs] {
					t.Fatalf("%s needs %s, which is no setting", name, row.needs)
				}
				env[row.needs] = "true"
			}
			before := fromEnv(t, env)
			value, ok := values[name]
			if !ok && row.becomes != "" {
				t.Fatalf("no value for %s in this test", name)
			}
			if !ok {
				value = "true"
			}
			env[name] = value
			after := fromEnv(t, env)
			text, todo := noteOn(after, name)
			switch changed := string(before.Config) != string(after.Config); {
			case row.becomes != "" && !changed && name != "vip_leaderelection":
				t.Errorf("%s changes nothing:\n%s", name, after.Config)
			case row.becomes == "" && changed:
				t.Errorf("%s is said not to be carried over, and changes the configuration:\n%s", name, cmp.Diff(string(before.Config), string(after.Config)))
			case row.becomes == "" && (text != row.text || todo != row.todo):
				t.Errorf("%s: noted as %q, %t, want %q, %t", name, text, todo, row.text, row.todo)
			}
			if row.flag != "" && name == row.env[0] {
				checkFlag(t, row, value)
			}
		}
	}
}

func fromEnv(t *testing.T, env map[string]string) *Result {
	t.Helper()
	var b strings.Builder
	b.WriteString("PATH=/bin\n")
	for name, value := range env {
		fmt.Fprintf(&b, "%s=%s\n", name, value)
	}
	r, err := KubeVIP([]byte(b.String()), Options{File: "f"})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func noteOn(r *Result, subject string) (text string, todo bool) {
	for _, n := range r.Notes {
		if n.Subject == subject {
			return n.Text, n.ToDo
		}
	}
	return "", false
}

// checkFlag checks that the flag is read as the variable is.
func checkFlag(t *testing.T, row kubeVIPRow, value string) {
	t.Helper()
	var notes noteList
	for _, words := range [][]word{
		{{"manager", 1}, {"--" + row.flag + "=" + value, 2}},
		{{"manager", 1}, {"--" + strings.ToUpper(row.flag), 2}, {value, 3}},
	} {
		got := readFlags(words, &notes)
		want := value
		if row.boolean && len(words) == 3 {
			want = "true"
		}
		if len(got) != 1 || got[0].name != row.env[0] || got[0].value != want || got[0].line != 2 {
			t.Errorf("%v is read as %v", words, got)
		}
	}
}

// Each keyword of keepalived's that is not carried over is noted with its row's words.
func TestEachKeywordOfKeepalived(t *testing.T) {
	for _, row := range keepalivedTable() {
		for _, pattern := range row.keywords {
			keyword := strings.ReplaceAll(pattern, "*", "x")
			line := keyword + " a b"
			for _, in := range map[string][]string{
				inInstance: {inInstance}, inGlobals: {inGlobals}, inGroup: {"vrrp_sync_group g"}, inScript: {"vrrp_script c"},
				inServer: {"virtual_server 10.9.9.9 80"}, inReal: {"real_server 10.9.9.1 80", "virtual_server 10.9.9.9 80"},
				inCheck: {"HTTP_GET", "real_server 10.9.9.1 80", "virtual_server 10.9.9.9 80"},
				inURL:   {"url", "HTTP_GET", "real_server 10.9.9.1 80", "virtual_server 10.9.9.9 80"},
			}[row.in] {
				line = in + " {\n" + line + "\n}"
			}
			r, err := Keepalived([]byte(line+"\nvrrp_instance v {\ntrack_script {\nc\n}\n}\n"), Options{File: "f"})
			if err != nil {
				t.Fatal(err)
			}
			text, todo := noteOn(r, keyword)
			if row.becomes == "" && (text != row.text || todo != row.todo) {
				t.Errorf("%s in %q: noted as %q, %t, want %q, %t", keyword, row.in, text, todo, row.text, row.todo)
			}
		}
	}
}
