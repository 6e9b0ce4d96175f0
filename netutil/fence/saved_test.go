package fence

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/herald-vip/herald/testenv/wait"
)

// Other programs may save the fence's tables and load them again. An open address stays open.
func TestReload(t *testing.T) {
	for _, o := range []Options{{}, {Services: true}, {Services: true, HostPorts: true}} {
		s := newWire(t)
		f := s.node.fenceWith(o)
		s.node.Must(f.Filter(vip.addrs()...))
		if o.Services {
			s.node.Must(f.FilterServices(vip[0].Addr()))
		}
		s.node.open(f.Open, vip.addrs()...)
		s.node.Reload()
		s.node.Must(f.Check())
		if restored := f.status().Restored; restored != 0 {
			t.Errorf("%+v: restored %d times", o, restored)
		}
		for _, addr := range vip.addrs() {
			if !s.answers(addr) {
				t.Errorf("%+v: node does not answer for %s", o, addr)
			}
		}
	}
}

// Check puts the tables back exactly if another program's lock opens an address for longer than the latest Open or Accept asked,
// or is confirmed but outlasts it.
func TestLocksOfOthers(t *testing.T) {
	const lease = 10 * time.Second
	addr := vip[0].Addr()
	states := map[string]func(f *Fence, m *model) error{
		"closed": func(f *Fence, m *model) error { return f.Close(addr) },
		"open":   func(f *Fence, m *model) error { return f.Open(m.time.Add(lease), addr) },
		"accepting": func(f *Fence, m *model) error {
			if err := f.Open(m.time.Add(lease), addr); err != nil {
				return err
			}
			return f.Accept(m.time.Add(lease), addr)
		},
		"late": func(f *Fence, m *model) error { // its second lock is not confirmed, and lasts too long
			if err := f.Open(m.time.Add(lease/2), addr); err != nil {
				return err
			}
			m.faults = []fault{{}, {Amid: 5 * time.Second}, {Amid: 5 * time.Second}}
			err := f.Open(m.time.Add(lease), addr)
			if errors.Is(err, ErrLate) {
				return nil
			}
			return err
		},
	}
	for _, test := range []struct {
		state string
		load  []Change
		found bool
	}{
		{"closed", nil, false},
		{"open", nil, false},
		{"accepting", nil, false},
		{"late", nil, false},
		{"closed", []Change{{answer, addr, time.Second}}, false},
		{"closed", []Change{{until, addr, time.Second}}, true},
		{"closed", []Change{{accept, addr, time.Second}, {until, addr, time.Second}}, true},
		{"accepting", []Change{{answer, addr, time.Second}}, true},
		{"accepting", []Change{{accept, addr, time.Second}, {until, addr, time.Second}}, false},
		{"accepting", []Change{{accept, addr, lease + time.Second}, {until, addr, lease + time.Second}}, true},
		{"open", []Change{{answer, addr, lease / 2}, {accept, addr, lease / 2}, {until, addr, lease / 2}}, false},
		{"open", []Change{{answer, addr, 2 * lease}}, false},
		{"open", []Change{{until, addr, 2 * lease}}, true},
		{"open", []Change{{answer, addr, 2 * lease}, {until, addr, 2 * lease}}, true},
		{"late", []Change{{answer, addr, lease}}, true},
	} {
		f, m := filtering(t, addr)
		if err := states[test.state](f, m); err != nil {
			t.Fatal(err)
		}
		m.ended = func(netip.Addr, time.Time, time.Time) {}
		m.commit(test.load, 0)
		if err := f.Check(); err != nil {
			t.Fatal(err)
		}
		if found := f.status().Restored == 1; found != test.found {
			t.Errorf("%s, then %v: put back %t, want %t", test.state, test.load, found, test.found)
		}
	}
}

// The locks of a holder, saved and loaded again while it lingers or after it closed, do not open its addresses: Keep puts the tables back.
func TestSavedLocks(t *testing.T) {
	const lease = 5 * time.Second
	for _, what := range []string{"table arp herald", "table inet herald", "set arp herald answer4", "ruleset"} {
		for name, end := range map[string]func(s *wire, f *Fence){
			"lingering": func(s *wire, f *Fence) { s.node.openFor(time.Minute, f.Accept, vip.addrs()...) },
			"closed":    func(s *wire, f *Fence) { s.node.Must(f.Close(vip.addrs()...)) },
		} {
			if what == "set arp herald answer4" && name == "closed" {
				continue // one lock alone opens nothing
			}
			t.Run(what+" "+name, func(t *testing.T) {
				t.Parallel()
				s := newWire(t)
				f := s.node.fence()
				s.node.Must(f.Filter(vip.addrs()...))
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { f.Keep(ctx, func() {}) })
				t.Cleanup(func() { cancel(); running.Wait() })
				s.node.openFor(lease, f.Open, vip.addrs()...)
				saved := s.node.Run("", "nft", append([]string{"list"}, strings.Fields(what)...)...)
				end(s, f)
				s.expect(name, false, name == "lingering")
				if table, ok := strings.CutPrefix(what, "table "); ok {
					saved = "delete table " + table + "\n" + saved
				} else if what == "ruleset" {
					saved = "flush ruleset\n" + saved
				}
				s.node.NFT(saved)
				loaded := time.Now()
				wait.Until(t, "the tables are put back", func() bool { return f.status().Restored == 1 })
				if took := time.Since(loaded); took > round/2 {
					t.Logf("INCONCLUSIVE: put back after %v, not at the notification", took)
				}
				for time.Since(loaded) < lease/2 {
					for _, addr := range vip.addrs() {
						if s.answers(addr) {
							t.Fatalf("the node answers for %s %v after the locks were loaded", addr, time.Since(loaded))
						}
					}
				}
			})
		}
	}
}
