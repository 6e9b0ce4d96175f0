//go:build e2e

package flat

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/migrate"
	"github.com/herald-vip/herald/migrate/keepalived"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/lab"
)

// TestARPPlanned takes the VIP from its holder in every planned way, without cost for a client.
func TestARPPlanned(t *testing.T) {
	t.Parallel()
	f, holder := site.StartFlat(t)
	restart := func(t *testing.T, m string) {
		f.Planned(t, m, func() error { return site.Stop(t, f.Node(m+"-speaker")) })
		site.Start(t, f.Node(m+"-speaker"))
		f.Ready(t, m)
		f.Asked(t, int(site.Lease/(10*time.Millisecond))) // a newly started member does not vote earlier
	}
	for _, change := range []struct {
		name string
		make func(t *testing.T)
	}{
		{"drain", func(t *testing.T) {
			f.Planned(t, holder, func() error { return f.Herald(t, holder, "drain") })
			f.Held(t, f.Others(holder)...)
			site.Must(t, f.Herald(t, holder, "undrain"))
			f.Ready(t, holder)
		}},
		{"rolling restart", func(t *testing.T) {
			for _, m := range site.FlatMasters() {
				restart(t, m)
			}
		}},
	} {
		t.Run(change.name, func(t *testing.T) {
			load, began := f.Connect(t), time.Now()
			load.GoesOn(t, 100)
			change.make(t)
			load.GoesOn(t, 100)
			load.None(t, began)
			holder = f.Held(t)
		})
	}
	for _, m := range site.FlatMasters() {
		site.WantLittleMemory(t, f.Node(m+"-speaker"))
	}
}

// TestARPKeyRotation changes the key on all members, node by node, and the VIP does
// not move. A member with another key is excluded, and reported once; so is a key file
// that others may read.
func TestARPKeyRotation(t *testing.T) {
	t.Parallel()
	f := site.NewFlat(t)
	for _, m := range site.FlatMasters() {
		site.Must(t, os.Chmod(filepath.Join(f.Dir, m, "gossip.key"), 0o644))
	}
	holder := f.Elect(t)
	exposed := func(want bool) {
		t.Helper()
		for _, m := range site.FlatMasters() {
			e := site.Get[*admin.Election](t)(f.Election(t, m))
			if said := strings.Contains(e.Exposed, "gossip.key has mode 0644"); said != want {
				t.Errorf("%s reports about its key %q", m, e.Exposed)
			}
			if n := f.Logged(t, m, "THE KEY OF THE ELECTION IS EXPOSED"); n != 1 {
				t.Errorf("%s warned %d times of its key, want once", m, n)
			}
		}
	}
	exposed(true)
	load, from := f.Connect(t), f.Mark(t)
	old := site.ReadFile(t, filepath.Join(f.Dir, "m1", "gossip.key"))
	site.Must(t, f.Herald(t, "m1", "keygen", "/tmp/new.key"))
	fresh := site.MustRun(t, f.Node("m1-speaker"), "cat", "/tmp/new.key")
	both := fresh + old
	for _, keys := range []string{old + fresh, both, fresh} {
		for _, m := range site.FlatMasters() {
			f.Rewrite(t, m, "gossip.key", func(string) string { return keys })
			f.Ready(t, m)
			f.Asked(t, 50)
		}
	}
	f.Stays(t, holder, from)
	load.None(t, from.Time)
	exposed(false)

	wrong := f.Others(holder)[0]
	f.Rewrite(t, wrong, "gossip.key", func(string) string { return old })
	other := f.Others(holder, wrong)[0]
	f.Elects(t, other, func(e *admin.Election) error {
		return site.ErrorIf(e.Undecipherable < 20, "%s could not read %d messages", other, e.Undecipherable)
	})
	f.Asked(t, 100)
	f.Stays(t, holder, from)
	if n := f.Logged(t, other, "cannot be decrypted"); n != 1 {
		t.Errorf("%s named the wrong key %d times, want once", other, n)
	}
}

// TestARPElectorate removes a member and adds it again by reload, and the VIP does not
// move; a file that names two missing members waits for them.
func TestARPElectorate(t *testing.T) {
	t.Parallel()
	f, holder := site.StartFlat(t)
	load, from := f.Connect(t), f.Mark(t)
	leaving := f.Others(holder)[0]
	staying := []string{holder, f.Others(holder, leaving)[0]}
	member := fmt.Sprintf(`%s: "10.4.0.%c:7946"`, leaving, leaving[1])
	without := func(s string) string {
		return strings.NewReplacer(", "+member, "", member+", ", "").Replace(s)
	}
	site.Must(t, site.Stop(t, f.Node(leaving+"-speaker")))
	for _, m := range staying {
		f.Rewrite(t, m, "herald.yaml", without)
	}
	members := func(want int) {
		t.Helper()
		for _, m := range staying {
			f.Elects(t, m, func(e *admin.Election) error {
				return site.ErrorIf(len(e.Members) != want || e.Change != "" || e.Problem != "",
					"%s has %d members, change %q, problem %q", m, len(e.Members), e.Change, e.Problem)
			})
		}
	}
	members(2)

	for _, m := range staying {
		f.Rewrite(t, m, "herald.yaml", func(s string) string { return strings.Replace(s, "members: {", "members: {"+member+", ", 1) })
	}
	site.Start(t, f.Node(leaving+"-speaker"))
	members(3)
	f.Ready(t, leaving)
	f.Stays(t, holder, from)

	f.Rewrite(t, holder, "herald.yaml", func(s string) string {
		return strings.Replace(s, "members: {", `members: {m8: "10.4.0.98:7946", m9: "10.4.0.99:7946", `, 1)
	})
	f.Speaker(holder).Shows(t, func(status admin.Status) error {
		e := status.Election
		return site.ErrorIf(e == nil || !strings.HasSuffix(e.Change, ", m8, m9"), "the status of the change is %+v", status.Election)
	})
	f.Asked(t, 100)
	f.Stays(t, holder, from)
	load.None(t, from.Time)
}

// TestARPReload changes by reload the settings that decide where a VIP is: the
// preferred node, and the link. Then it kills all speakers at once.
func TestARPReload(t *testing.T) {
	t.Parallel()
	f, holder := site.StartFlat(t)
	policy := func(m, old, now string) {
		f.Rewrite(t, m, "herald.yaml", func(s string) string { return strings.Replace(s, "announce: arp"+old, "announce: arp"+now, 1) })
	}
	const preferred = "\n  priority: 200\n  preempt: true"

	better := f.Others(holder)[0]
	f.Planned(t, holder, func() error {
		policy(better, "", preferred)
		f.Held(t, better)
		return nil
	})
	from := f.Mark(t)
	policy(better, preferred, "")
	f.Asked(t, 200)
	f.Stays(t, better, from)
	holder = better

	// A missing link excludes a node from the VIP, until the link appears.
	const late = "\n  interface: late0"
	f.Planned(t, holder, func() error {
		policy(holder, "", late)
		f.Held(t, f.Others(holder)...)
		return nil
	})
	f.Speaker(holder).Shows(t, func(status admin.Status) error {
		return site.ErrorIf(!strings.Contains(status.VIPs[0].Reason, "there is no link late0"),
			"the VIP is %s: %s", status.VIPs[0].Stage, status.VIPs[0].Reason)
	})
	for _, args := range []string{"add late0 type veth peer name late1", "set late0 up", "set late1 up"} {
		site.MustRun(t, f.Node(holder), append([]string{"ip", "link"}, strings.Fields(args)...)...)
	}
	f.Ready(t, holder)
	policy(holder, late, "\n  interface: eth1")
	f.Ready(t, holder)
	f.Held(t, f.Others(holder)...)
	withdrawn(t, f, holder)

	for _, m := range site.FlatMasters() {
		site.Must(t, f.Node(m+"-speaker").Kill())
	}
	f.Asked(t, int((site.Lease+time.Second)/(10*time.Millisecond)))
	dark := f.Seen.Clock()
	f.Asked(t, 50)
	for _, s := range f.Seen.Trace().Observations {
		if s.At > dark {
			t.Fatalf("with no speaker running: %v", s)
		}
	}
	for _, m := range site.FlatMasters() {
		site.Start(t, f.Node(m+"-speaker"))
	}
	f.Held(t)
}

// withdrawn waits until the VIP no longer lingers on a master: with or without a
// speaker, it accepts packets for a while after the VIP has left.
func withdrawn(t *testing.T, f *site.Flat, master string) {
	t.Helper()
	f.Speaker(master).ShowsVIPs(t, func(v admin.VIP) error {
		return site.ErrorIf(v.Stage != "withdrawn", "%s is %s on %s", v.Address, v.Stage, master)
	})
}

// TestARPManyVIPs shares 200 VIPs among three masters, each preferred for a third.
// When a speaker is killed the others take its VIPs.
func TestARPManyVIPs(t *testing.T) {
	t.Parallel()
	const many = 200
	f := site.NewFlat(t)
	var addresses []string
	for i := 11; len(addresses) < many; i++ {
		if i < 128 || i >= 160 { // the observer asks from these
			addresses = append(addresses, fmt.Sprintf("10.4.0.%d", i))
		}
	}
	favourite := make(map[string]string) // by VIP
	for i, m := range site.FlatMasters() {
		favourite[fmt.Sprintf("vip%d", i)] = m
	}
	for _, m := range site.FlatMasters() {
		var list strings.Builder
		for i, a := range addresses {
			name, claim := fmt.Sprintf("vip%d", i), ""
			if favourite[name] == m {
				claim = ", priority: 200, preempt: true"
			}
			fmt.Fprintf(&list, "- {name: %s, addresses: [%s], announce: arp, checks: [apiserver]%s}\n", name, a, claim)
		}
		f.Rewrite(t, m, "herald.yaml", func(s string) string {
			return strings.Replace(s, "checks:\n- name", list.String()+"checks:\n- name", 1)
		})
	}
	f.Elect(t)

	holders := make(map[string]string) // by VIP
	shared := func(masters ...string) error {
		clear(holders)
		for _, m := range masters {
			status, err := f.Speaker(m).Status(t)
			if err != nil {
				return err
			}
			for _, v := range status.VIPs {
				switch {
				case v.Stage != "announced" || v.Name == "control-plane":
				case holders[v.Name] != "":
					return fmt.Errorf("%s and %s announce %s", holders[v.Name], m, v.Name)
				default:
					holders[v.Name] = m
				}
			}
		}
		if len(holders) != many {
			return fmt.Errorf("%d of %d VIPs are announced", len(holders), many)
		}
		for name, m := range favourite {
			if holders[name] != m && len(masters) == len(site.FlatMasters()) {
				return fmt.Errorf("%s is announced by %s, want its favourite, %s", name, holders[name], m)
			}
		}
		return nil
	}
	site.Eventually(t, site.Soon, func() error { return shared(site.FlatMasters()...) })
	share := make(map[string]int)
	for _, m := range holders {
		share[m]++
	}
	greatest := slices.MaxFunc(site.FlatMasters(), func(a, b string) int { return share[a] - share[b] })

	site.Must(t, f.Node(greatest+"-speaker").Kill())
	site.Eventually(t, site.Soon, func() error { return shared(f.Others(greatest)...) })
}

// oldConf is keepalived's, with the VIP's IPv4 address; %d are number and priority of the master.
const oldConf = `global_defs {
  enable_script_security
  script_user root
}
vrrp_script apiserver {
  script "/usr/bin/curl -sf --max-time 1 http://127.0.0.1:6443/readyz -o /dev/null"
  interval 1
}
vrrp_instance control-plane {
  interface eth1
  virtual_router_id 51
  priority %d
  virtual_ipaddress {
    10.4.0.10
  }
  virtual_ipaddress_excluded {
    fd00:4::10
  }
  track_script {
    apiserver
  }
}
`

// TestMigrateFromKeepalived follows docs/migrating.md: it tries Herald with spare
// addresses while keepalived has the VIP, and lets it take over once keepalived has
// been stopped on its holder. Two nodes never answer at the same time.
func TestMigrateFromKeepalived(t *testing.T) {
	t.Parallel()
	f := site.NewFlat(t)
	o := migrate.Options{
		File:    "keepalived.conf",
		KeyFile: "/etc/herald/gossip.key",
		Members: map[string]netip.AddrPort{},
	}
	for i, m := range site.FlatMasters() {
		o.Members[m] = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 4, 0, byte(i + 1)}), migrate.GossipPort)
	}
	final := map[string]string{}
	trial := strings.NewReplacer("10.4.0.10", "10.4.0.11", "fd00:4::10", "fd00:4::11", "control-plane", "trial")
	for i, m := range site.FlatMasters() {
		conf := fmt.Sprintf(oldConf, 120-10*i)
		site.Must(t, os.WriteFile(filepath.Join(f.Dir, m, "keepalived.conf"), []byte(conf), 0o644))
		r := site.Get[*migrate.Result](t)(keepalived.Convert([]migrate.File{{Name: "keepalived.conf", Data: []byte(conf)}}, o))
		if !r.Complete() {
			t.Fatalf("not complete: %v\n%s", r.Notes, r.Config)
		}
		// The lab's masters share the host name of this machine.
		final[m] = "nodeName: " + m + "\n" + string(r.Config)
		site.Must(t, os.WriteFile(filepath.Join(f.Dir, m, "herald.yaml"), []byte(trial.Replace(final[m])), 0o644))
	}
	site.Must(t, f.Boot(site.Context(t)))
	old := map[string]*lab.Process{}
	for _, m := range site.FlatMasters() {
		var err error
		old[m], err = f.Node(m + "-speaker").Start(exec.Command("keepalived", "--dont-fork", "--log-console", "--use-file=/etc/herald/keepalived.conf",
			"--pid=/etc/herald/a.pid", "--vrrp_pid=/etc/herald/b.pid", "--checkers_pid=/etc/herald/c.pid"))
		site.Must(t, err)
		f.Held(t, "m1") // before the next one starts: two keepaliveds answer until they receive each other
	}
	for _, m := range site.FlatMasters() {
		f.Ready(t, m) // with the spare addresses
	}
	f.Held(t, "m1")

	for _, m := range []string{"m3", "m2", "m1"} {
		site.Must(t, old[m].Stop(t.Context()))
	}
	site.Eventually(t, site.Soon, func() error {
		addresses, err := site.Run(t, f.Node("m1"), "ip", "-o", "address", "show", "dev", "eth1")
		if err == nil && strings.Contains(addresses, "10.4.0.10/") || strings.Contains(addresses, "fd00:4::10/") {
			err = fmt.Errorf("m1 still has the VIP: %s", addresses)
		}
		return err
	})
	replace := func(m string) { f.Rewrite(t, m, "herald.yaml", func(string) string { return final[m] }) }
	replace("m1")
	f.Held(t, "m1")
	replace("m2")
	replace("m3")
	for _, m := range site.FlatMasters() {
		f.Ready(t, m)
	}
	site.Must(t, f.Node("m1-apiserver").Kill())
	f.Held(t, "m2", "m3")
}
