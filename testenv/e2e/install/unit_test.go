//go:build e2e

package install

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/manifests"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/lab"
)

// unitOf returns the unit for the configuration in a folder.
func unitOf(t *testing.T, folder string) []byte {
	t.Helper()
	unit := site.Get[[]byte](t)(manifests.Make(manifests.Systemd, manifests.Options{Config: parseConfig(t, filepath.Join(folder, "herald.yaml"))}))
	return unit
}

// TestUnitVerified checks units with systemd-analyze: they are valid, and their exposure is low.
func TestUnitVerified(t *testing.T) {
	// Out of 100; a service without any sandbox has 96. Units that run commands as other
	// users, and open /dev/net/tun, are more exposed.
	const usual, every = 30, 31
	binary := site.Get[string](t)(filepath.Abs(site.Part(t, "HERALD")))
	for _, tt := range []struct {
		name        string
		config      *config.Config
		mostExposed int
	}{
		{"any", nil, usual}, {"every field, in real time", parseConfig(t, "../../../config/example.yaml"), every},
	} {
		t.Run(tt.name, func(t *testing.T) {
			unit := site.Get[[]byte](t)(manifests.Make(manifests.Systemd, manifests.Options{Config: tt.config, Binary: binary}))
			file := filepath.Join(t.TempDir(), "herald.service")
			site.Must(t, os.WriteFile(file, unit, 0o644))
			analyze := func(args ...string) string {
				t.Helper()
				out, err := exec.CommandContext(t.Context(), "systemd-analyze", append(args, file)...).CombinedOutput()
				if err != nil {
					t.Errorf("systemd-analyze %s: %v: %s", args, err, out)
				}
				return strings.TrimSpace(string(out))
			}
			if complaint := analyze("verify"); complaint != "" {
				t.Error(complaint)
			}
			rows := strings.Split(analyze("security", "--offline=true", fmt.Sprintf("--threshold=%d", tt.mostExposed)), "\n")
			t.Log(rows[len(rows)-1])
		})
	}
}

// systemd is a systemd in a node with only herald's unit.
type systemd struct {
	pid int // on the host
}

// bootSystemd runs a systemd for the node as the first process of a PID namespace, and
// starts the unit if it is not empty. Its standard output goes to another place than
// on a host, since there is no journal.
func bootSystemd(t *testing.T, n *lab.Node, unit []byte) systemd {
	t.Helper()
	write := func(file, text string) {
		t.Helper()
		site.MustRun(t, n, "sh", "-c", `mkdir -p "$(dirname "$0")" && printf %s "$1" >"$0"`, file, text)
	}
	const units = "/etc/systemd/system/"
	for _, target := range []string{"sysinit.target", "basic.target", "shutdown.target"} {
		write(units+target, "[Unit]\nDefaultDependencies=no\n")
	}
	first := "basic.target"
	if unit != nil {
		first = "herald.service"
		write(units+first, string(unit))
	}
	write(units+"herald.service.d/lab.conf", "[Service]\nStandardOutput=append:/run/herald.log\nStandardError=append:/run/herald.log\n")
	p, err := n.Start(&exec.Cmd{
		Args: []string{"unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc",
			"/lib/systemd/systemd", "--system", "--unit=" + first, "--show-status=false"},
		Env: []string{"container=lab", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
	})
	site.Must(t, err)
	var s systemd
	t.Cleanup(func() {
		if t.Failed() {
			state, _ := s.ctl(t, "status", "--no-pager")
			log, _ := site.Run(t, n, "cat", "/run/herald.log")
			t.Logf("%s:\n%s\n%s", n.Name(), state, log)
		}
		if err := p.Kill(); err != nil { // it does not end by SIGTERM
			t.Error(err)
		}
	})
	s.pid = child(t, p.Pid(), "systemd")
	return s
}

// child waits until a process has a child of that name, and returns its PID on the host.
func child(t *testing.T, parent int, name string) (pid int) {
	t.Helper()
	site.Eventually(t, site.Soon, func() error {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", parent, parent))
		if err != nil {
			return err
		}
		for _, field := range strings.Fields(string(text)) {
			comm, err := os.ReadFile("/proc/" + field + "/comm")
			if err == nil && string(comm) == name+"\n" {
				pid, err = strconv.Atoi(field)
				return err
			}
		}
		return fmt.Errorf("process %d has no child %s", parent, name)
	})
	return pid
}

// ctl runs systemctl for the unit, beside that systemd.
func (s systemd) ctl(t *testing.T, verb string, flags ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), site.Soon)
	defer cancel()
	return s.run(ctx, append(append([]string{"systemctl", verb}, flags...), "herald")...)
}

// mustCtl is ctl for a command that must succeed.
func (s systemd) mustCtl(t *testing.T, verb string, flags ...string) {
	t.Helper()
	site.Get[string](t)(s.ctl(t, verb, flags...))
}

// run runs a command beside that systemd.
func (s systemd) run(ctx context.Context, argv ...string) (string, error) {
	args := append([]string{"--target", strconv.Itoa(s.pid), "--pid", "--mount", "--net"}, argv...)
	out, err := exec.CommandContext(ctx, "nsenter", args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%q: %w: %s", argv, err, out)
	}
	return strings.TrimSpace(string(out)), err
}

// becomes waits until a property of the unit has a value.
func (s systemd) becomes(t *testing.T, property, want string) {
	t.Helper()
	site.Eventually(t, site.Soon, func() error {
		got, err := s.ctl(t, "show", "--value", "--property="+property)
		return site.Check(err, got != want, "%s of the unit is %q, want %q", property, got, want)
	})
}

// TestUnit runs the unit under systemd, with its sandbox: it announces, reloads,
// refuses a bad file, is restarted when it hangs, remembers a drain, and drains when
// stopped.
func TestUnit(t *testing.T) {
	s := site.NewSession(t, site.Files{"herald/herald.yaml": site.SpeakerConf([]string{site.VIP4}, `peers: [{address: 10.0.1.254, asn: 64500, bfd: {}}]`)})
	site.Boot(t, s.Lab, "r1")
	d := bootSystemd(t, s.Node("s"), unitOf(t, s.Config))

	d.becomes(t, "ActiveState", "active") // so READY=1 has come
	s.Path(t, "r1", site.VIP4)
	s.HasAddress(t, site.VIP4, true)
	d.becomes(t, "StatusText", "1 of 1 addresses announced")
	pid := child(t, d.pid, "herald")
	status := site.ReadFile(t, fmt.Sprintf("/proc/%d/status", pid))
	for _, want := range []string{"CapEff:\t0000000000001000", "CapBnd:\t0000000000001000", "NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !strings.Contains(status, want+"\n") {
			t.Errorf("the speaker's status lacks %q:\n%s", want, status)
		}
	}

	file := filepath.Join(s.Config, "herald.yaml")
	good := site.ReadFile(t, file)
	site.Must(t, os.WriteFile(file, []byte(strings.Replace(good, "asn: 64512", "asn: many", 1)), 0o644))
	if _, err := d.ctl(t, "reload"); err == nil {
		t.Error("a bad file is accepted")
	}
	site.Must(t, os.WriteFile(file, []byte(strings.Replace(good, "announce: bgp,", "announce: bgp, linger: 2s,", 1)), 0o644))
	d.mustCtl(t, "reload")
	s.Shows(t, func(status admin.Status) error {
		return site.ErrorIf(status.Config.Error != "" || status.Config.Generation < 2, "the configuration is %+v", status.Config)
	})
	if now := child(t, d.pid, "herald"); now != pid {
		t.Errorf("a reload replaced process %d by %d", pid, now)
	}

	site.Must(t, unix.Kill(pid, unix.SIGSTOP))
	d.becomes(t, "NRestarts", "1")
	d.becomes(t, "ActiveState", "active")
	s.Path(t, "r1", site.VIP4)

	// The sandbox lets it remember a drain.
	site.MustRun(t, s.Node("s"), "herald", "drain", "--until-undrain")
	d.mustCtl(t, "restart")
	d.becomes(t, "ActiveState", "active")
	s.Shows(t, func(status admin.Status) error {
		return site.ErrorIf(status.Draining == "" || !status.UntilUndrain || status.Checks[0].State != health.Healthy,
			"draining %q, until undrain: %t, check %s", status.Draining, status.UntilUndrain, status.Checks[0].State)
	})
	s.HasAddress(t, site.VIP4, false)
	site.MustRun(t, s.Node("s"), "herald", "undrain")
	s.Path(t, "r1", site.VIP4)

	d.mustCtl(t, "stop")
	s.HasAddress(t, site.VIP4, false)
	d.becomes(t, "Result", "success")
}

// TestUnitStopsFirst makes systemd stop Herald and unbound at once, as at a reboot:
// with the drop-in of docs/anycast.md unbound stays until Herald has drained.
func TestUnitStopsFirst(t *testing.T) {
	const guide = "../../../docs/anycast.md"
	s := site.NewSession(t, site.Files{"herald/herald.yaml": site.Blocks(t, guide, "Herald", "yaml")[0] + "nodeName: s\n"})
	n := s.Node("s")
	for file, text := range map[string]string{
		"/etc/unbound/unbound.conf.d/anycast.conf":          site.Blocks(t, guide, "unbound", "unbound")[0],
		"/etc/systemd/system/herald.service.d/unbound.conf": site.Blocks(t, guide, "The service", "ini")[0],
		"/etc/systemd/system/unbound.service.d/lab.conf":    "[Service]\nExecStop=sh -c 'ip address show dev lo >/run/lo'\n",
	} {
		site.MustRun(t, n, "sh", "-c", `mkdir -p "$(dirname "$0")" && printf %s "$1" >"$0"`, file, text)
	}
	d := bootSystemd(t, n, unitOf(t, s.Config))
	d.becomes(t, "ActiveState", "active")
	d.mustCtl(t, "start", "unbound")
	s.HasAddress(t, "10.99.0.53", true)

	d.mustCtl(t, "stop", "--no-block")
	d.mustCtl(t, "stop", "unbound")
	if lo := site.MustRun(t, n, "cat", "/run/lo"); strings.Contains(lo, "10.99.0.53") || !strings.Contains(lo, "127.0.0.1") {
		t.Errorf("when unbound was stopped lo was\n%s", lo)
	}
}

// TestUnitARP elects a holder among three services, in real time and with the lease
// filter, and stops it.
func TestUnitARP(t *testing.T) {
	f := site.NewFlat(t)
	services := make(map[string]systemd)
	for _, m := range site.FlatMasters() {
		f.Rewrite(t, m, "herald.yaml", func(s string) string { return "realtime: true\n" + s })
		site.Boot(t, f.Lab, m+"-apiserver")
		services[m] = bootSystemd(t, f.Node(m+"-speaker"), unitOf(t, filepath.Join(f.Dir, m)))
	}
	for _, m := range site.FlatMasters() {
		f.Ready(t, m)
	}
	holder := f.Held(t)
	status := site.Get[admin.Status](t)(f.Speaker(holder).Status(t))
	if status.Election.Fence != admin.FenceOn || status.Realtime != admin.RealtimeOn {
		t.Errorf("%s has the lease filter %q and real time %q, want both on", holder, status.Election.Fence, status.Realtime)
	}
	f.Planned(t, holder, func() error {
		_, err := services[holder].ctl(t, "stop")
		return err
	})
	f.Held(t, f.Others(holder)...)
}
