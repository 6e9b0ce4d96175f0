package election

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/herald-vip/herald/election/members"
	"github.com/herald-vip/herald/testenv/fabric"
)

// workers runs a test in virtual time with three masters, which vote and advertise, and n workers, which do neither.
// The workers' files list the initial masters.
func workers(t *testing.T, n int, test func(t *testing.T, f *fabric.Fabric, c *cluster, masters, workers []*member)) {
	virtually(t, 3, nil, func(t *testing.T, f *fabric.Fabric, c *cluster) {
		for i, at := range sites(100 + n)[100:] {
			c.observer(fmt.Sprintf("w%03d", i), at)
		}
		c.start()
		advertise(c.members[:3]...)
		within(t, 3*time.Second, "m1 m2 m3", c.members...)
		test(t, f, c, c.members[:3:3], slices.Clone(c.members[3:]))
	})
}

// master adds a master at an address. It starts once the masters' files list these members.
func (c *cluster) master(name string, site int, with ...*member) *member {
	config := c.members[0].config.clone()
	config.Self = name
	config.Members[name] = sites(site + 1)[site]
	added := c.add(config)
	elect(append(with, added)...)
	reload(append(with, added)...)
	added.Advertise(serves())
	return added
}

// retire stops a master and removes it from the others' files. The electorate changes by one member at a time.
func (m *member) retire(rest ...*member) {
	m.t.Helper()
	elect(rest...)
	reload(rest...)
	if err := m.Close(); err != nil {
		m.t.Fatal(err)
	}
}

// TestWorkersFollowTheMasters replaces masters without changing the workers' files.
func TestWorkersFollowTheMasters(t *testing.T) {
	workers(t, 20, func(t *testing.T, f *fabric.Fabric, c *cluster, masters, workers []*member) {
		m1, m2, m3 := masters[0], masters[1], masters[2]
		m4 := c.master("m4", 3, m1, m2, m3)
		within(t, time.Second, "m1 m2 m3 m4", c.members...)
		time.Sleep(10 * time.Second)

		m2.retire(m1, m3, m4)
		within(t, 0, "m1 m3 m4", workers...)
		time.Sleep(10 * time.Second)

		m1.retire(m3, m4)
		within(t, 0, "m3 m4", workers...)
		time.Sleep(10 * time.Second)
		m5 := c.master("m5", 0, m3, m4) // another host at the address of m1
		within(t, time.Second, "m3 m4 m5", workers...)
		time.Sleep(10 * time.Second)
		again := c.master("m2", 50, m3, m4, m5) // the name of m2 at another address
		within(t, time.Second, "m2 m3 m4 m5", workers...)
		if o, _ := workers[0].lastState("m2"); o.Address != again.home {
			t.Errorf("m2 is at %v", o.Address)
		}
		for _, w := range workers {
			if s := w.Status(); s.Lease.Lag != "" || s.Lease.Problem != "" {
				t.Errorf("%s complains: %q, %q", w.name, s.Lease.Lag, s.Lease.Problem)
			}
			if n := w.log.Count("level=WARN") - w.log.Count("a member has left"); n > 0 || w.log.Count("a member has left") > 2 {
				t.Errorf("%s complains:\n%v", w.name, w.log)
			}
		}

		// All masters in the workers' files are gone, except m3 and the one at the address of m1.
		f.Part(workers[0].home, m3.home, true)
		workers[0].crash()
		workers[0].apply(nil)
		within(t, time.Second, "m2 m4 m5", workers[0])
		f.Part(workers[0].home, m3.home, false)
		within(t, 2*time.Second, "m2 m3 m4 m5", workers[0])
	})
}

// TestManyWorkersLearnWithinASecond starts one of many workers, and a master that most of them know only through
// others.
func TestManyWorkersLearnWithinASecond(t *testing.T) {
	workers(t, 40, func(t *testing.T, f *fabric.Fabric, c *cluster, masters, workers []*member) {
		c.master("m4", 3, masters...)
		within(t, time.Second, "m1 m2 m3 m4", c.members...)
		for i := range 5 {
			w := c.observer(fmt.Sprintf("late%d", i), sites(60)[50+i])
			w.apply(nil)
			within(t, time.Second, "m1 m2 m3 m4", w)
		}
	})
}

// TestWorkerRemembersMasters replaces all masters in a worker's file while the worker is down.
func TestWorkerRemembersMasters(t *testing.T) {
	workers(t, 2, func(t *testing.T, f *fabric.Fabric, c *cluster, masters, workers []*member) {
		file := filepath.Join(t.TempDir(), "members")
		w, forgetful := workers[0], workers[1]
		w.apply(func(c *Config) { c.Remember = file })
		now := masters
		for i, name := range []string{"m4", "m5", "m6"} {
			now = append(now, c.master(name, 3+i, now...))
			time.Sleep(10 * time.Second)
			now[0].retire(now[1:]...)
			now = now[1:]
			time.Sleep(10 * time.Second)
			if i == 1 { // it knows three of them, and one will stay
				w.crash()
				forgetful.crash()
			}
		}
		w.apply(nil)
		forgetful.apply(nil)
		within(t, time.Second, "m4 m5 m6", w)
		time.Sleep(10 * time.Second)
		if all := forgetful.MemberStates(); len(all) > 0 {
			t.Errorf("without remembered members, it knows %v", all)
		}
		if members, err := members.ReadRemembered(file); err != nil || len(members) != 3 || members["m6"] != now[2].home {
			t.Errorf("it remembers %v, %v", members, err)
		}
	})
}
