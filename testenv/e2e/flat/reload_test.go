//go:build e2e

package flat

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/e2e/site"
)

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
	f.Speaker(master).Shows(t, func(status admin.Status) error {
		for _, v := range status.VIPs {
			if v.Stage != "withdrawn" {
				return fmt.Errorf("%s is %s on %s", v.Address, v.Stage, master)
			}
		}
		return nil
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
