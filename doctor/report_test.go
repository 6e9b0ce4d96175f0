package doctor

import (
	"crypto/x509"
	"encoding/json"
	"net"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/doctor/facts"
	"github.com/herald-vip/herald/testenv/must"
)

// sample returns the report in docs/troubleshooting.md, of a master before Herald's first start.
func sample(t testing.TB) Report {
	t.Helper()
	c := parsed(t, strings.Replace(flatFile, `tcp: {address: "127.0.0.1:6443"}`,
		`http: {url: "https://127.0.0.1:6443/readyz", caFile: /etc/kubernetes/pki/ca.crt, serverName: kubernetes}`, 1))
	f := well(c)
	f.Checks[0].Reason = "GET https://127.0.0.1:6443/readyz: 200 in 2.1ms"
	cert := certificate()
	cert.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	cert.DNSNames = []string{"kubernetes"}
	f.Endpoints = map[string]facts.Endpoint{"apiserver": endpoint(t, cert)}
	f.Members["m3"] = facts.Reach{TCP: facts.Refused, UDP: facts.Refused}
	f.Wire[vip] = facts.Use{MAC: stranger, Stranger: stranger}
	return newReport("v0.1.0", "/etc/herald/herald.yaml", c, now, examine(c, f))
}

func rendered(t testing.TB, r Report) string {
	t.Helper()
	var out strings.Builder
	must.Do(t, r.WriteText(&out))
	return out.String()
}

// Control characters in a file name do not reach the terminal.
func TestSubjectIsPrintable(t *testing.T) {
	r := Report{Findings: []Finding{{Severity: Warning, Topic: "t", Subject: "a\x1b[2J"}, {Severity: OK, Topic: "t", Subject: "b\x1b[2J"}}}
	if got := rendered(t, r); strings.Contains(got, "\x1b") {
		t.Errorf("the report has control characters: %q", got)
	}
}

// The report in docs/troubleshooting.md equals the output of the command.
func TestPage(t *testing.T) {
	page := must.Get[[]byte](t)(os.ReadFile("../docs/troubleshooting.md"))
	_, shown, _ := strings.Cut(string(page), "```\n$ herald doctor --config /etc/herald/herald.yaml\n")
	shown, _, _ = strings.Cut(shown, "```")
	if diff := cmp.Diff(rendered(t, sample(t)), shown); diff != "" {
		t.Errorf("docs/troubleshooting.md shows another report (-printed +shown):\n%s", diff)
	}
}

// The page names every field of the JSON form and every topic.
func TestPageOnJSON(t *testing.T) {
	page := must.Get[[]byte](t)(os.ReadFile("../docs/troubleshooting.md"))
	for _, s := range []reflect.Type{reflect.TypeFor[Report](), reflect.TypeFor[Finding]()} {
		for i := range s.NumField() {
			name, _, _ := strings.Cut(s.Field(i).Tag.Get("json"), ",")
			if !strings.Contains(string(page), "| `"+name+"` |") {
				t.Errorf("docs/troubleshooting.md lacks the field %s", name)
			}
		}
	}
	for _, file := range []string{routedFile, flatFile} {
		c, f := node(t, file)
		f.Endpoints = map[string]facts.Endpoint{"apiserver": endpoint(t, certificate())}
		f.Tenants = []v1alpha1.Tenant{acme()}
		for _, finding := range examine(c, f) {
			if !strings.Contains(string(page), "| `"+finding.Topic+"` |") {
				t.Errorf("docs/troubleshooting.md lacks the topic %s", finding.Topic)
			}
		}
	}
}

func TestJSON(t *testing.T) {
	r := sample(t)
	encoded, err := json.Marshal(r)
	must.Do(t, err)
	var back Report
	must.Do(t, json.Unmarshal(encoded, &back))
	if diff := cmp.Diff(r, back); diff != "" {
		t.Errorf("(-sent +received):\n%s", diff)
	}
	if r.Blockers != 2 || r.Warnings != 1 || r.Blockers+r.Warnings+r.Fine != len(r.Findings) {
		t.Errorf("%d blockers, %d warnings, %d fine of %d", r.Blockers, r.Warnings, r.Fine, len(r.Findings))
	}
	for i, f := range r.Findings {
		if want := []Severity{Blocker, Blocker, Warning, OK}[min(i, 3)]; f.Severity != want {
			t.Errorf("finding %d is %s, want %s", i, f.Severity, want)
		}
	}
	empty, err := json.Marshal(newReport("v", "f", parsed(t, flatFile), now, nil))
	if err != nil || !strings.Contains(string(empty), `"findings":[]`) {
		t.Errorf("without findings: %s, %v", empty, err)
	}
}

// Names in a certificate cannot break lines or send control characters to the terminal.
func TestTextIsPlain(t *testing.T) {
	c, f := node(t, routedFile)
	f.Endpoints = map[string]facts.Endpoint{"apiserver": {ServerName: "kubernetes", Chain: []*x509.Certificate{{
		NotBefore: now.AddDate(-1, 0, 0), NotAfter: now.AddDate(1, 0, 0), DNSNames: []string{"\x1b[2Jx\nBLOCKER  fake"},
	}}}}
	c.Checks[0].HTTP.InsecureSkipVerify = false
	f.Peers["10.0.1.254"] = "says \x1b]0;x\a and\nmore"
	for _, line := range strings.Split(rendered(t, newReport("v", "f", c, now, examine(c, f))), "\n") {
		if strings.ContainsAny(line, "\x1b\a") || strings.HasPrefix(line, "BLOCKER  fake") {
			t.Errorf("%q", line)
		}
	}
}
