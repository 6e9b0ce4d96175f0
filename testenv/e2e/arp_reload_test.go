//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestARPReload changes by reload what decides where a VIP is: who is preferred,
// and the link. Then all speakers are killed at once.
func TestARPReload(t *testing.T) {
	f, holder := newElected(t)
	policy := func(m, old, now string) {
		f.rewrite(t, m, "herald.yaml", func(s string) string { return strings.Replace(s, "announce: arp"+old, "announce: arp"+now, 1) })
	}
	const preferred = "\n  priority: 200\n  preempt: true"

	better := f.others(holder)[0]
	f.planned(t, holder, func() error {
		policy(better, "", preferred)
		f.held(t, better)
		return nil
	})
	from := f.seen.Clock()
	policy(better, preferred, "")
	f.asked(t, 200)
	f.stays(t, better, from)
	holder = better

	// A link that is not there yet keeps a node from the VIP, until it is.
	const late = "\n  interface: late0"
	f.planned(t, holder, func() error {
		policy(holder, "", late)
		f.held(t, f.others(holder)...)
		return nil
	})
	eventually(t, soon, func() error {
		status, err := f.speaker(holder).status(t)
		if err == nil && !strings.Contains(status.VIPs[0].Reason, "there is no link late0") {
			err = fmt.Errorf("the VIP is %s: %s", status.VIPs[0].Stage, status.VIPs[0].Reason)
		}
		return err
	})
	for _, args := range []string{"add late0 type veth peer name late1", "set late0 up", "set late1 up"} {
		_, err := run(t, f.Node(holder), append([]string{"ip", "link"}, strings.Fields(args)...)...)
		must(t, err)
	}
	f.ready(t, holder)
	policy(holder, late, "\n  interface: eth1")
	f.ready(t, holder)
	f.held(t, f.others(holder)...)
	f.withdrawn(t, holder)

	for _, m := range flatMasters() {
		must(t, f.Node(m+"-speaker").Kill())
	}
	f.asked(t, int(2*lease/(10*time.Millisecond)))
	dark := f.seen.Clock()
	f.asked(t, 50)
	for _, s := range f.seen.Trace().Sightings {
		if s.At > dark {
			t.Fatalf("with no speaker running: %v", s)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	for _, m := range flatMasters() {
		must(t, f.Node(m+"-speaker").Boot(ctx))
	}
	f.held(t)
}

// withdrawn waits until nothing of the VIP lingers on a master: packets that are on
// their way to it are taken for a while after it has left, speaker or no speaker.
func (f *flat) withdrawn(t *testing.T, master string) {
	t.Helper()
	eventually(t, soon, func() error {
		status, err := f.speaker(master).status(t)
		if err != nil {
			return err
		}
		for _, v := range status.VIPs {
			if v.Stage != "withdrawn" {
				return fmt.Errorf("%s is %s on %s", v.Address, v.Stage, master)
			}
		}
		return nil
	})
}

// TestARPManyVIPs has three masters share 200 VIPs, of which each is preferred for
// one. When a speaker is killed the others take what it had.
func TestARPManyVIPs(t *testing.T) {
	const many = 200
	f := newFlat(t)
	var addresses []string
	for i := 11; len(addresses) < many; i++ {
		if i < 128 || i >= 160 { // the observer asks from these
			addresses = append(addresses, fmt.Sprintf("10.4.0.%d", i))
		}
	}
	favourite := make(map[string]string) // by VIP
	for i, m := range flatMasters() {
		favourite[fmt.Sprintf("vip%d", i)] = m
	}
	for _, m := range flatMasters() {
		var list strings.Builder
		for i, a := range addresses {
			name, claim := fmt.Sprintf("vip%d", i), ""
			if favourite[name] == m {
				claim = ", priority: 200, preempt: true"
			}
			fmt.Fprintf(&list, "- {name: %s, addresses: [%s], announce: arp, checks: [apiserver]%s}\n", name, a, claim)
		}
		f.rewrite(t, m, "herald.yaml", func(s string) string {
			return strings.Replace(s, "checks:\n- name", list.String()+"checks:\n- name", 1)
		})
	}
	f.elect(t)

	holders := make(map[string]string) // by VIP
	shared := func(masters ...string) error {
		clear(holders)
		for _, m := range masters {
			status, err := f.speaker(m).status(t)
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
			if holders[name] != m && len(masters) == len(flatMasters()) {
				return fmt.Errorf("%s is announced by %s, want its favourite, %s", name, holders[name], m)
			}
		}
		return nil
	}
	eventually(t, soon, func() error { return shared(flatMasters()...) })
	share := make(map[string]int)
	for _, m := range holders {
		share[m]++
	}
	greatest := slices.MaxFunc(flatMasters(), func(a, b string) int { return share[a] - share[b] })

	const measured = 3 * time.Second
	before := make(map[string]time.Duration)
	for _, m := range flatMasters() {
		before[m] = processorTime(t, f.Node(m+"-speaker").Daemon("herald").Pid())
	}
	<-time.After(measured)
	for _, m := range flatMasters() {
		pid := f.Node(m + "-speaker").Daemon("herald").Pid()
		t.Logf("%s has %d VIPs: %.1f %% of a core, %.1f MiB", m, share[m],
			100*(processorTime(t, pid)-before[m]).Seconds()/measured.Seconds(), float64(memory(t, pid, "VmRSS"))/(1<<20))
	}

	must(t, f.Node(greatest+"-speaker").Kill())
	killed := time.Now()
	eventually(t, soon, func() error { return shared(f.others(greatest)...) })
	t.Logf("all are announced again %v after %s was killed, which had %d", time.Since(killed).Round(time.Millisecond), greatest, share[greatest])
}
