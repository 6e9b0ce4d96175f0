package ruleset

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/testenv/nettest"
)

// sample returns a table with a set of addresses, a map to a chain, a set with timeouts, a counter and three chains.
func sample() Table {
	in := &nftables.Table{Name: "sample", Family: nftables.TableFamilyINet}
	vip, key := []byte{10, 9, 0, 100}, nftables.TypeIPAddr
	return Table{
		Table: in, Counters: []string{"seen"},
		Sets: []Set{
			{&nftables.Set{Table: in, Name: "vips", KeyType: key}, []nftables.SetElement{{Key: vip}}},
			{&nftables.Set{Table: in, Name: "jumps", KeyType: key, DataType: nftables.TypeVerdict, IsMap: true}, []nftables.SetElement{
				{Key: vip, VerdictData: &expr.Verdict{Kind: expr.VerdictJump, Chain: "later"}},
			}},
			{&nftables.Set{Table: in, Name: "open", KeyType: key, HasTimeout: true}, []nftables.SetElement{{Key: vip, Timeout: time.Hour}}},
		},
		Chains: []Chain{
			{Name: "input", Hook: nftables.ChainHookInput, Priority: *nftables.ChainPriorityFilter, Rules: []Rule{
				NewRule("to a VIP", Load(Network, 16, 4), In("vips"), []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: "later"}}),
			}},
			{Name: "output", Hook: nftables.ChainHookOutput, Priority: *nftables.ChainPriorityFilter, Rules: []Rule{NewRule("out", []expr.Any{&expr.Counter{}})}},
			{Name: "later", Rules: []Rule{NewRule("counts", []expr.Any{&expr.Counter{}})}},
		},
	}
}

// Intact notices each change but of elements that come and go, and Make repairs it.
func TestTable(t *testing.T) {
	h := nettest.NewHost(t)
	s := Socket{NetNS: int(h.NS)}
	defer s.Close()
	expect := func(when string, want bool) {
		t.Helper()
		rules, ok, err := s.Intact(sample())
		if err != nil || ok != want || ok && len(rules) != 3 {
			t.Errorf("%s: intact: %t, error %v, rules %+v; want %t", when, ok, err, rules, want)
		}
		if exists, err := s.Exist(sample().Table); err != nil || want && !exists {
			t.Errorf("%s: the table exists: %t, error %v", when, exists, err)
		}
	}
	expect("without the table", false)
	h.Must(s.Make(sample()))
	expect("made", true)
	const output = "chain inet sample output"
	anew := func(at string) string {
		return "flush " + output + "; delete " + output + "; add " + output + at + "; add rule inet sample output counter comment \"out\""
	}
	for command, intact := range map[string]bool{
		anew(" { type filter hook output priority filter; }"):              true,
		anew(" { type filter hook output priority filter; policy drop; }"): false,
		anew(" { type filter hook output priority 1; }"):                   false,
		anew(" { type filter hook input priority filter; }"):               false,
		anew(" { type route hook output priority filter; }"):               false,
		anew(""): false,
		"flush " + output + "; add rule inet sample output accept comment \"out\"":                      false,
		"flush " + output + "; add rule inet sample output counter comment \"other\"":                   false,
		"flush " + output + "; add rule inet sample output counter packets 7 bytes 700 comment \"out\"": true,
		"flush " + output + "; add rule inet sample output counter drop comment \"out\"":                false,
		"flush ruleset": false,
		"add table inet sample { flags dormant; }": false,
		"flush chain inet sample input":            false,
		"flush chain inet sample later; flush chain inet sample input; add rule inet sample later counter comment \"counts\"": false,
		"flush set inet sample vips":                                      false,
		"add element inet sample vips { 10.9.0.1 }":                       false,
		"delete element inet sample jumps { 10.9.0.100 }":                 false,
		"flush set inet sample open":                                      true,
		"add table ip sample":                                             true,
		"add chain inet sample other; add rule inet sample other counter": true,
	} {
		h.NFT(command)
		expect("after "+command, intact)
		h.Must(s.Make(sample()))
		expect("made after "+command, true)
	}
	h.Must(s.RemoveTables(sample().Table))
	if exists, err := s.Exist(sample().Table); err != nil || exists {
		t.Errorf("removed table exists: %t, error %v", exists, err)
	}
}

// An element is deleted even if it is missing, and a timeout begins anew when the same batch adds the element again.
func TestElements(t *testing.T) {
	h := nettest.NewHost(t)
	s := Socket{NetNS: int(h.NS)}
	defer s.Close()
	h.Must(s.Make(sample()))
	vips, jumps, open := sample().Sets[0].Set, sample().Sets[1].Set, sample().Sets[2].Set
	change := func(queue func(c *nftables.Conn, s *nftables.Set, elements []nftables.SetElement) error, set *nftables.Set, from, n int, lasts time.Duration) error {
		return s.Batch(func(c *nftables.Conn) error {
			elements := make([]nftables.SetElement, n)
			for i := range elements {
				elements[i] = nftables.SetElement{Key: []byte{10, 8, byte((from + i) >> 8), byte(from + i)}, Timeout: lasts}
			}
			return queue(c, set, elements)
		})
	}
	h.Must(change(AddElements, vips, 0, 1000, 0))
	h.Must(change(DeleteElements, vips, 500, 1000, 0)) // half of them are missing
	h.Must(change(AddElements, open, 0, 1, time.Hour))
	h.Must(change(DeleteElements, open, 0, 2, time.Hour))
	if err := change(DeleteElements, jumps, 0, 1, 0); !errors.Is(err, unix.ENOENT) {
		t.Errorf("a missing element of a map: error %v, want ENOENT", err)
	}
	if got := strings.Count(h.NFT("list table inet sample"), "10.8."); got != 500 {
		t.Errorf("%d elements are left, want 500", got)
	}
}
