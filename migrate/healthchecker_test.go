package migrate_test

import (
	"strings"
	"testing"

	"github.com/herald-vip/herald/migrate"
	"github.com/herald-vip/herald/migrate/healthchecker"
	"github.com/herald-vip/herald/testenv/must"
)

// The files are read as one, and notes name their file.
func TestAnycastFiles(t *testing.T) {
	files := []migrate.File{
		{Name: "main.conf", Data: []byte("[DEFAULT]\ncheck_disabled = false\ncheck_rise = 7\n[daemon]\nloglevel = info")},
		{Name: "a.conf", Data: []byte("[a]\nip_prefix = 10.3.0.1\ncheck_cmd = /bin/a\n")},
		{Name: "b.conf", Data: []byte("[b]\nip_prefix = 10.3.0.1/32\ninterface = eth0\ncheck_cmd = /bin/b")},
	}
	r, err := healthchecker.Convert(files, migrate.Options{File: "main.conf"})
	must.Do(t, err)
	for _, want := range []string{
		"main.conf:5: loglevel: ", "a.conf:3: check_cmd: runs in a sandbox", "b.conf:2: ip_prefix: 10.3.0.1 is a VIP already",
		"b.conf:1: vips[1].addresses: to do: ", "b.conf:3: interface: ", "main.conf: to do: have BIRD read table 201",
	} {
		if !strings.Contains(lines(r.Notes), want) {
			t.Errorf("no note %s:\n%s", want, lines(r.Notes))
		}
	}
	if n := strings.Count(string(r.Config), "rise: 7"); n != 2 {
		t.Errorf("%d checks have the default settings:\n%s", n, r.Config)
	}
	files[2].Data = []byte("\xff")
	if _, err := healthchecker.Convert(files, migrate.Options{}); err == nil || !strings.HasPrefix(err.Error(), "b.conf: ") {
		t.Errorf("a file that is not text: %v", err)
	}
}

func FuzzAnycast(f *testing.F) {
	fromAnycast.fuzz(f, "[", "[a]", "[DEFAULT]\n[a]\n b", "[a]\nip_prefix: ::1\ncheck_disabled: no\ncheck_cmd: /bin/a\n b", "[daemon]\nx\n=\n:")
}

// Each setting of anycast-healthchecker changes the configuration, or a note has its row's text.
func TestEachAnycastSetting(t *testing.T) {
	const service = "[a]\nip_prefix = 10.3.0.1\ncheck_cmd = /bin/a\ncheck_disabled = off\n"
	before := fromAnycast.text(t, service, migrate.Options{})
	values := map[string]string{"ip_prefix": "10.3.0.2", "check_cmd": "/bin/b", "check_disabled": "yes", "on_disabled": "advertise"}
	for _, row := range healthchecker.Table() {
		for _, name := range row.Names {
			line := name + " = 7\n"
			if value := values[name]; value != "" {
				line = name + ": " + value + "\n"
			}
			if name == "on_disabled" {
				line += "check_disabled = true\n"
			}
			if row.In == "daemon" {
				line = "[daemon]\n" + line
			}
			checkEffect(t, row, name, before, fromAnycast.text(t, service+line, migrate.Options{}))
		}
	}
}
