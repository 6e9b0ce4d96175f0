package election

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/election/lease/message"
	"github.com/herald-vip/herald/internal/disk"
	"github.com/herald-vip/herald/testenv/fabric"
	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/wait"
)

// elect gives all these members the same list.
func elect(members ...*member) {
	for _, m := range members {
		m.config = m.config.clone()
		clear(m.config.Members)
		for _, other := range members {
			m.config.Members[other.name] = other.home
		}
	}
}

// voters returns the number of voters.
func voters(s Status) int {
	n := 0
	for _, m := range s.Members {
		if m.Voter {
			n++
		}
	}
	return n
}

func TestMembersChangeOneByOne(t *testing.T) {
	virtually(t, 4, nil, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
		defer c.watch("vip")()
		old, added := c.members[:3], c.members[3]
		elect(old...)
		c.members = old
		c.start("vip")
		holder := c.holder("vip")
		c.met()
		holder.told()

		c.members = append(old[:3:3], added)
		elect(c.members...)
		c.start("vip") // one by one
		c.met()
		time.Sleep(5 * time.Second)
		for _, m := range c.members {
			if told := m.told(); len(told) > 0 {
				t.Errorf("the handler of %s received %v while a member was added", m.name, told)
			}
			s := m.Status()
			if len(s.Members) != 4 || s.Lease.Active == nil || len(s.Lease.Active.Members) != 4 || s.Lease.Problem != "" {
				t.Errorf("%s is in the election %+v", m.name, s.Lease)
			}
		}

		elect(old...)
		reload(old...)
		must.Do(t, added.Apply(nil))
		c.members = old
		time.Sleep(5 * time.Second)
		c.holder("vip", old...)
		for _, m := range old {
			if s := m.Status(); voters(s) != 3 || s.Lease.Active == nil || len(s.Lease.Active.Members) != 3 {
				t.Errorf("%s is in the election %+v", m.name, s.Lease)
			}
		}
	})
}

// TestDifferentFileIsReported checks that a member with a different file adopts the electorate of the others, and that both
// sides report the difference.
func TestDifferentFileIsReported(t *testing.T) {
	virtually(t, 5, nil, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
		odd, good := c.members[2], c.members[:2]
		elect(c.members[:3]...)
		elect(odd, c.members[3], c.members[4]) // contains neither of the others
		odd.config.Members["m1"], odd.config.Members["m2"] = good[0].home, good[1].home
		c.members = c.members[:3]
		c.start("vip")
		c.holder("vip")
		time.Sleep(5 * time.Second)
		for _, m := range good {
			if s := m.Status(); len(s.Members) != 3 || s.Ahead(s.Members[2]) == "" || s.Ahead(s.Members[1]) != "" || s.Change() != "" {
				t.Errorf("%s reports %+v", m.name, s.Members)
			}
		}
		if s := odd.Status(); s.Lease.Number != 1 || s.Change() != "to members m1, m2, m3, m4, m5, once all of its members have it: not yet m1, m2, m4, m5" {
			t.Errorf("the member with the different file reports %q of %+v", s.Change(), s.Lease)
		}
	})
}

// TestAgreementIsOnDisk checks that the committed electorate survives the process, and that a holder that cannot store
// it takes no part in changing it, and keeps its lease.
func TestAgreementIsOnDisk(t *testing.T) {
	dir := t.TempDir()
	virtually(t, 3, func(c *Config) { c.State = filepath.Join(dir, c.Self, "electorate") }, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
		defer c.watch("vip")()
		c.start("vip")
		c.holder("vip")
		for _, m := range c.members {
			m.apply(func(config *Config) { config.Lease = time.Second })
		}
		time.Sleep(5 * time.Second)
		for _, m := range c.members {
			m.crash()
		}
		c.members[0].config = c.members[0].config.clone()
		c.members[0].config.Lease = 600 * time.Millisecond // an outdated file
		c.start("vip")
		if s := c.members[0].Status(); s.Lease.Number != 2 || s.Lease.Active.Duration != time.Second {
			t.Errorf("m1 starts with %+v", s.Lease)
		}
		holder := c.holder("vip")
		holder.told()

		must.Do(t, os.RemoveAll(filepath.Join(dir, holder.name)))
		if err := os.WriteFile(filepath.Join(dir, holder.name), nil, 0o600); err != nil { // no folder can be created here
			t.Fatal(err)
		}
		for _, m := range c.members {
			m.apply(func(config *Config) { config.Lease = 700 * time.Millisecond })
		}
		time.Sleep(5 * time.Second)
		if told := holder.told(); len(told) > 0 {
			t.Errorf("the holder received %v", told)
		}
		if s := holder.Status(); !strings.Contains(s.Lease.Problem, "cannot be written to disk") {
			t.Errorf("%s reports %q", holder.name, s.Lease.Problem)
		}
		must.Do(t, os.Remove(filepath.Join(dir, holder.name)))
		time.Sleep(5 * time.Second)
		if s := holder.Status(); s.Lease.Problem != "" || s.Lease.Number != 3 {
			t.Errorf("with a disk again, %s reports %+v", holder.name, s.Lease)
		}
		c.holder("vip")
	})
}

// TestUnsavedVotesGrantNothing checks that a member that cannot store an electorate keeps the one before, even as the
// only voter.
func TestUnsavedVotesGrantNothing(t *testing.T) {
	dir := t.TempDir()
	virtually(t, 1, func(c *Config) { c.State = filepath.Join(dir, c.Self, "electorate") }, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
		c.start("vip")
		holder := c.holder("vip")
		must.Do(t, os.RemoveAll(filepath.Join(dir, holder.name)))
		if err := os.WriteFile(filepath.Join(dir, holder.name), nil, 0o600); err != nil { // no folder can be created here
			t.Fatal(err)
		}
		holder.apply(func(config *Config) { config.Lease = 2 * config.Lease })
		time.Sleep(10 * time.Second)
		if s := holder.Status(); !holder.holds("vip") || s.Lease.Number != 1 || !strings.Contains(s.Lease.Problem, "cannot be written to disk") {
			t.Errorf("it holds the lease: %t, and reports %q of electorate %d", holder.holds("vip"), s.Lease.Problem, s.Lease.Number)
		}
	})
}

func TestUnreadableAgreementIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "electorate")
	const good = `"Record": {"Number": 1, "Members": ["m1@192.0.2.1:7946"], "Duration": 1000000000}`
	for text, want := range map[string]string{
		"{":                               "unexpected end",
		"{}":                              "invalid number",
		"null":                            "invalid number",
		`{"Record": {"Number": 1}}`:       "no members",
		`{"Record": {"Number": "first"}}`: "cannot unmarshal",
		`{"Record": {"Number": 9223372036854775807, "Members": ["m1"], "Duration": 1000000000}}`: "invalid number",
		"{" + good + `, "Promised": {"Counter": 9223372036854775807}}`:                           "ballot",
		"{" + good + `, "Value": {"Members": ["m1@192.0.2.1:7946"]}}`:                            "cannot follow",
		"{" + good + `, "Value": {"Members": ["m2", "m3"], "Duration": 1000000000}}`:             "cannot follow",
		"{" + good + `, "Longest": 3600000000000}`:                                               "longest lease",
	} {
		must.Do(t, os.WriteFile(file, []byte(text), 0o600))
		_, err := readState(file)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "remove "+file+"; ") {
			t.Errorf("%s: %v, want %q and a cure", text, err, want)
		}
	}
	if err := os.WriteFile(file, []byte("{"+good+"}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := readState(file); err != nil || s.Committed.Number != 1 {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestMessageWithoutAddressIsIgnored checks that a message without a sender address is not taken for a member's.
func TestMessageWithoutAddressIsIgnored(t *testing.T) {
	virtually(t, 1, nil, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
		c.start()
		m := c.members[0]
		for _, from := range []string{"unknown", "unknown@", "m1", "m1@192.0.2.99:1"} {
			b, err := (&message.Message{From: from, Incarnation: 1, Receiver: message.Identity(electorate.Member(m.name, m.home, ""), 0), Sequence: 1}).AppendBinary(nil)
			if err != nil {
				t.Fatal(err)
			}
			m.node.receive(b)
		}
		if n := m.node.unjoined.Load(); n != 4 {
			t.Errorf("%d of 4 were refused; members %+v", n, m.Status().Members)
		}
	})
}

// TestFullDiskIsRetriedSeldom checks that a full disk is retried once per second and no temporary file stays behind.
func TestFullDiskIsRetriedSeldom(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	virtually(t, 1, func(c *Config) { c.State = filepath.Join(dir, "electorate") }, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
		if err := os.MkdirAll(filepath.Join(dir, "electorate.new"), 0o700); err != nil { // not writable
			t.Fatal(err)
		}
		var tries atomic.Int64
		c.members[0].replace = func(file string, b []byte) error {
			tries.Add(1)
			return disk.Replace(file, b)
		}
		c.start("vip")
		time.Sleep(10 * time.Second)
		m := c.members[0]
		if n := tries.Load(); n < 9 || n > 11 {
			t.Errorf("tried %d times in 10 s", n)
		}
		must.Do(t, os.Remove(filepath.Join(dir, "electorate.new")))
		for range 100 {
			m.node.step(nil)
		}
		synctest.Wait()
		if s := m.Status(); s.Lease.Problem == "" {
			t.Error("it was retried too early")
		}
		time.Sleep(storeAgain)
		c.holder("vip")
		if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
			t.Errorf("left in the folder: %v, %v", names, err)
		}
	})
}

// TestMemberElsewhereIsDifferent gives m3 another address in the file of m2, and runs a member at both. Each has a
// majority by its own file, but only one has a vote.
func TestMemberElsewhereIsDifferent(t *testing.T) {
	virtually(t, 4, nil, func(t *testing.T, f *fabric.Fabric, c *cluster) {
		defer c.watch("vip")()
		m1, m2, old, moved := c.members[0], c.members[1], c.members[2], c.members[3]
		moved.name, moved.config.Self = "m3", "m3"
		for _, m := range c.members {
			m.config = m.config.clone()
			delete(m.config.Members, "m4")
			if m == moved {
				m.config.Members["m3"] = moved.home
			}
		}
		c.members = []*member{m1, m2, old}
		c.start("vip")
		c.holder("vip")
		c.met()

		f.Part(m1.home, m2.home, true)
		f.Part(old.home, m2.home, true)
		m2.apply(func(c *Config) { c.Members["m3"] = moved.home })
		moved.apply(nil)
		moved.Campaign(lease.Candidacy{Lease: "vip"})
		time.Sleep(10 * time.Second)
		c.holder("vip", m1, old)
		if s := moved.Status(); moved.holds("vip") || m2.holds("vip") || s.Lease.Number > 1 {
			t.Errorf("the new m3 reports %+v", s)
		}

		f.Part(m1.home, m2.home, false)
		f.Part(old.home, m2.home, false)
		old.crash()
		m1.apply(func(c *Config) { c.Members["m3"] = moved.home })
		time.Sleep(10 * time.Second)
		c.members = []*member{m1, m2, moved}
		c.holder("vip")
		for _, m := range c.members {
			if s := m.Status(); s.Lease.Number != 3 || voters(s) != 3 || s.Change() != "" {
				t.Errorf("%s reports %+v", m.name, s.Lease)
			}
		}
	})
}

// TestRemovedMemberVotesUntilAllKnow checks that a removed member is admitted until all others know of the removal: its
// vote may be needed.
func TestRemovedMemberVotesUntilAllKnow(t *testing.T) {
	virtually(t, 4, nil, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
		defer c.watch("vip")()
		c.start()
		for _, m := range c.members[:2] {
			m.Campaign(lease.Candidacy{Lease: "vip"})
		}
		holder := c.holder("vip", c.members[:2]...)
		c.met()
		c.members[2].crash()
		stay := c.members[:3]
		elect(stay...)
		reload(c.members[:2]...)
		time.Sleep(10 * time.Second)
		if told := holder.told(); len(told) != 1 {
			t.Fatalf("the holder received %v", told)
		}
		c.members[2].apply(nil)
		time.Sleep(10 * time.Second)
		for _, m := range stay {
			if s := m.Status(); voters(s) != 3 || s.Lease.Desired != nil {
				t.Errorf("%s is in the election %+v", m.name, s.Lease)
			}
			wait.Until(t, "the former member is no longer admitted", func() bool { return m.Status().Members[0].Alive && len(m.heard()) == 3 })
		}
		if told := holder.told(); len(told) != 0 {
			t.Fatalf("the holder received %v", told)
		}
	})
}
