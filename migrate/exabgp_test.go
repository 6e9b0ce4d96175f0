package migrate_test

import (
	"strings"
	"testing"

	"github.com/herald-vip/herald/migrate"
	"github.com/herald-vip/herald/migrate/exabgp"
	"github.com/herald-vip/herald/testenv/must"
)

// A converted file without notes to do is complete.
func TestExaBGPComplete(t *testing.T) {
	if r := fromExaBGP.read(t, "exabgp/testdata/complete.conf", migrate.Options{}); !r.Complete() {
		t.Errorf("not complete:\n%s%s", r.Config, lines(r.Notes))
	}
}

// Options of the command line take precedence over the --config file, and notes name their file.
func TestExaBGPConfigFile(t *testing.T) {
	files := []migrate.File{
		{Name: "exabgp.conf", Data: []byte("neighbor 10.0.1.254 { local-as 1; peer-as 2; api { processes [ a ]; } }\n" +
			"process a { run exabgp healthcheck --config /etc/exabgp/hc.conf --fall 7 --ip 10.99.0.2/32; }")},
		{Name: "other.conf", Data: []byte("name = other")},
		{Name: "conf/hc.conf", Data: []byte("# for a\n debug\nname = web\ncommand = /bin/a -b=c\nfall = 9\n\nip = 10.99.0.1/32\nunheard-of = 1\nwithdraw-on-down")},
	}
	r, err := exabgp.Convert(files, migrate.Options{File: "exabgp.conf"})
	must.Do(t, err)
	for _, want := range []string{"name: web\n", "name: web-2\n", `command: [/bin/a, "-b=c"]`, "fall: 7", "addresses: [10.99.0.1]", "addresses: [10.99.0.2]"} {
		if !strings.Contains(string(r.Config), want) {
			t.Errorf("no %s:\n%s", want, r.Config)
		}
	}
	if strings.Contains(string(r.Config), "demote") {
		t.Errorf("not withdrawn:\n%s", r.Config)
	}
	for _, want := range []string{"conf/hc.conf:2: --debug: ", "conf/hc.conf:4: --command: ", "conf/hc.conf:8: --unheard-of: to do: "} {
		if !strings.Contains(lines(r.Notes), want) {
			t.Errorf("no note %s:\n%s", want, lines(r.Notes))
		}
	}
	checkHonest(t, r)
	files[2].Data = []byte{0}
	if _, err := exabgp.Convert(files, migrate.Options{}); err == nil || !strings.HasPrefix(err.Error(), "conf/hc.conf: ") {
		t.Errorf("a file that is not text: %v", err)
	}
}

func FuzzExaBGP(f *testing.F) {
	fromExaBGP.fuzz(f, "{", "}", "{;}", "a {{ } b", `"`, `a "b\`, "neighbor a { inherit [ b; } template { neighbor b { inherit b; } }",
		"process a { run healthcheck --ip ::1 --ip; }", "process a { run healthcheck --start-ip 3 --ip ::1 --increase 4294967295 --up-metric 4294967295 --ip ::2; }")
}

// Each setting of ExaBGP has the effect in its row: it changes the configuration, or a note has the row's text.
func TestEachExaBGPSetting(t *testing.T) {
	values := map[string]string{ // values that differ from the base
		"local-as": "3", "peer-as": "4", "router-id": "1.2.3.4", "local-address": "10.0.0.1", "hold-time": "9", "md5-password": "s3cret", "connect": "1179",
		"outgoing-ttl": "9", "incoming-ttl": "250", "family": "{ ipv4 unicast }", "api": "{ processes [ b ]; }", "inherit": "t",
		"--name": "other", "--command": "/bin/b", "--fast-interval": "2", "--timeout": "3", "--rise": "7", "--fall": "8", "--disable": "/off",
		"--user": "me", "--ip": "10.99.0.3/32", "--neighbor": "10.0.0.253",
		"--up-metric": "7", "--increase": "9", "--start-ip": "1", "--local-preference": "5", "--community": "1:1", "--large-community": "1:1:1",
		"--as-path": "\"2 2\"",
	}
	text := func(neighbor, option string) *migrate.Result {
		return fromExaBGP.text(t, "template { neighbor t { hold-time 77; } }\nneighbor 10.0.0.254 { local-as 2; peer-as 1; api { processes [ a ]; }\n"+neighbor+"\n}\n"+
			"neighbor 10.0.0.253 { local-as 2; peer-as 2; api { processes [ a ]; } }\n"+
			"process a { run healthcheck --command /bin/a --ip 10.99.0.1/32 --ip 10.99.0.2/32\n"+option+"; }\n", migrate.Options{})
	}
	before := text("", "")
	for _, row := range exabgp.Table() {
		for _, name := range row.Names {
			value, ok := values[row.Names[0]]
			if !ok {
				value = "7"
			}
			var after *migrate.Result
			switch {
			case row.In == "neighbor" && strings.HasPrefix(value, "{"):
				after = text(name+" "+value, "")
			case row.In == "neighbor":
				after = text(name+" "+value+";", "")
			case row.In == "healthcheck" && row.Boolean:
				after = text("", name)
			case row.In == "healthcheck" && name != "--config" && name != "-F" && name != "--label":
				after = text("", name+" "+value)
			default:
				continue // blocks, and settings in TestExaBGPConfigFile and the golden files
			}
			if name != "api" { // it adds to the base's
				checkEffect(t, row, name, before, after)
			}
		}
	}
}
