package election

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/internal/disk"
	"github.com/herald-vip/herald/testenv/fabric"
	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/wait"
)

// slow makes each write to the members' disks take so long.
func slow(d time.Duration, members ...*member) {
	for _, m := range members {
		m.replace = func(file string, b []byte) error {
			time.Sleep(d)
			return disk.Replace(file, b)
		}
	}
}

// TestSlowDisks checks that no lease waits for a disk: voters join, a voter is replaced, the lease changes, and the
// holder keeps the VIP meanwhile.
func TestSlowDisks(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		delay time.Duration
		slow  []int
	}{
		{30 * ms, []int{0, 1, 2, 3}}, {100 * ms, []int{0}}, {100 * ms, []int{1}}, {time.Second, []int{0}}, {time.Second, []int{1}}, {time.Second, []int{2}},
		{time.Second, []int{0, 1, 2, 3}}, {3 * time.Second, []int{0, 1, 2, 3}},
	} {
		t.Run(fmt.Sprintf("%v at %v", test.delay, test.slow), func(t *testing.T) {
			openly(t, 4, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
				defer c.watch("vip")()
				m := c.members
				for _, i := range test.slow {
					slow(test.delay, m[i])
				}
				enter(m[0])
				c.holder("vip", m[0])
				began := time.Now()
				enter(m[1:3]...)
				c.voters("m1", "m2", "m3")
				t.Logf("the third voter got in after %v", time.Since(began))
				before := m[0].Status().Lease.Active.Members[2]
				m[2].crash()
				m[2].apply(func(c *Config) { must.Do(t, os.Remove(c.State)) })
				m[2].Campaign(lease.Candidacy{Lease: "vip"})
				began = time.Now()
				wait.Until(t, "the third voter is another", func() bool {
					s := m[0].Status()
					return slices.ContainsFunc(s.Members, func(o Member) bool { return o.Name == "m3" && o.FullName != before && o.Voter })
				})
				c.voters("m1", "m2", "m3")
				t.Logf("it was replaced after %v", time.Since(began))
				began = time.Now()
				for _, one := range m[:3] {
					one.apply(func(c *Config) { c.Lease = 900 * ms })
				}
				for _, one := range m[:3] {
					wait.Until(t, "the lease is longer", func() bool { return one.Status().Lease.Active.Duration == 900*ms })
				}
				t.Logf("the lease was longer after %v", time.Since(began))
				time.Sleep(20 * time.Second)
				for _, one := range m[:3] {
					if s, err := readState(one.config.State); err != nil || s.Committed.Number != one.Status().Lease.Number {
						t.Errorf("%s has electorate %d, on disk is %d, %v", one.name, one.Status().Lease.Number, s.Committed.Number, err)
					}
				}
				if told := m[0].told(); len(told) != 1 {
					t.Errorf("the holder received %v", told)
				}
			})
		})
	}
}

// TestSlowDisksWithoutQuorum does the same for two members without a quorum.
func TestSlowDisksWithoutQuorum(t *testing.T) {
	dir := t.TempDir()
	virtually(t, 2, func(c *Config) { c.Quorum, c.State = electorate.None, filepath.Join(dir, c.Self) }, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
		slow(time.Second, c.members...)
		c.start("vip")
		holder := c.holder("vip")
		c.met()
		time.Sleep(5 * time.Second)
		holder.told()
		for _, m := range c.members {
			m.apply(func(c *Config) { c.Lease = 500 * time.Millisecond })
		}
		for _, m := range c.members {
			wait.Until(t, "the lease is shorter", func() bool { return m.Status().Lease.Active.Duration == 500*time.Millisecond })
		}
		if told := holder.told(); len(told) > 0 {
			t.Errorf("the holder received %v", told)
		}
	})
}

// TestFirstElectorateIsOnDisk checks that a member holds no lease by an electorate that no disk has.
func TestFirstElectorateIsOnDisk(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	virtually(t, 1, func(c *Config) { c.State = file }, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
		m := c.members[0]
		var mended atomic.Bool
		m.replace = func(file string, b []byte) error {
			if !mended.Load() {
				return errors.New("full")
			}
			return disk.Replace(file, b)
		}
		m.apply(nil)
		m.Campaign(lease.Candidacy{Lease: "vip"})
		time.Sleep(10 * time.Second)
		s := m.Status().Lease
		if s.Number != 0 || s.Leases[0].Holder != "" || len(m.told()) > 0 || !strings.Contains(s.Problem, "cannot be written to disk") {
			t.Errorf("electorate %d, leases %+v, problem %q", s.Number, s.Leases, s.Problem)
		}
		mended.Store(true)
		c.holder("vip")
	})
}
