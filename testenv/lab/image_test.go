package lab_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/testenv/clab"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/must"
)

func TestBinary(t *testing.T) {
	t.Chdir("/opt")
	got := must.Get[lab.Program](t)(lab.Binary("bin/herald-testenv", "router")(clab.Node{Cmd: []string{"--config", "x"}}))
	want := lab.Program{
		Binds:   []clab.Bind{{Source: "/opt/bin/herald-testenv", Target: "/usr/local/bin/herald-testenv", ReadOnly: true}},
		Daemons: []lab.Daemon{{Name: "herald-testenv", Argv: []string{"/usr/local/bin/herald-testenv", "router", "--config", "x"}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestFRR checks that the listed daemons run in the foreground, zebra first.
func TestFRR(t *testing.T) {
	tests := []struct {
		name, daemons string
		want          map[string][]string // options by daemon
		order         []string
	}{
		{name: "empty", order: []string{"zebra", "staticd"}},
		{
			name: "some",
			daemons: `# ospfd=yes
  bgpd=yes
ripd=no
zebra=no
staticd=yes
vtysh_enable=yes
bfdd=yes

zebra_options="  -A 127.0.0.1 -s 90000000"
bgpd_options='--daemon -d -p 1179'
#bfdd_options="-A ::1"
frr_profile="datacenter"
`,
			want:  map[string][]string{"zebra": {"-A", "127.0.0.1", "-s", "90000000"}, "bgpd": {"-p", "1179"}},
			order: []string{"zebra", "staticd", "bgpd", "bfdd"},
		},
		{name: "garbage", daemons: "=\n==\n=yes\nd=yes\nx\n\"\n", order: []string{"zebra", "staticd", "d"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "daemons")
			must.Do(t, os.WriteFile(file, []byte(tt.daemons), 0o644))
			node := clab.Node{Binds: []clab.Bind{{Source: "/no/such", Target: "/etc/frr/frr.conf"}, {Source: file, Target: "/etc/frr/daemons"}}}
			got := must.Get[lab.Program](t)(lab.FRR(node))
			var want []lab.Daemon
			for _, name := range tt.order {
				argv := []string{"/usr/lib/frr/" + name, "--log", "stdout", "--log-level", "informational"}
				want = append(want, lab.Daemon{Name: name, Argv: append(argv, tt.want[name]...), Socket: "/run/frr/" + name + ".vty"})
			}
			if diff := cmp.Diff(want, got.Daemons); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if _, err := lab.FRR(clab.Node{Binds: []clab.Bind{{Source: "/no/such", Target: "/etc/frr/daemons"}}}); err == nil {
		t.Error("a missing file is no error")
	}
}
