package members

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/hashicorp/memberlist"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/transport"
	"github.com/herald-vip/herald/testenv/must"
)

func ap(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

func trio() map[string]netip.AddrPort {
	return map[string]netip.AddrPort{"m1": ap("10.0.0.1:7946"), "m2": ap("10.0.0.2:7946"), "m3": ap("10.0.0.3:7946")}
}

func admission(log io.Writer, open bool) *transport.Admission {
	return transport.NewAdmission(slog.New(slog.NewTextHandler(log, nil)), open)
}

func named(name, at string) *memberlist.Node {
	a := ap(at)
	return &memberlist.Node{Name: name, Addr: net.IP(a.Addr().AsSlice()), Port: a.Port()}
}

func TestRejectsNodes(t *testing.T) {
	var log bytes.Buffer
	a := admission(&log, false)
	r := New("m1", a, nil, nil)
	r.Configure(trio(), nil)
	for name, test := range map[string]struct {
		node *memberlist.Node
		want string
	}{
		"itself":                      {named("m1", "10.0.0.1:7946"), ""},
		"a member":                    {named("m2", "10.0.0.2:7946"), ""},
		"IPv4 as IPv6":                {&memberlist.Node{Name: "m2", Addr: net.IPv4(10, 0, 0, 2).To16(), Port: 7946}, ""},
		"another address":             {named("m2", "10.0.0.9:7946"), `"m2" is at 10.0.0.2:7946 in the configuration, not at 10.0.0.9:7946`},
		"another port":                {named("m2", "10.0.0.2:1"), `"m2" is at 10.0.0.2:7946 in the configuration, not at 10.0.0.2:1`},
		"another name":                {named("m9", "10.0.0.2:7946"), `"m9" is not among the configured members`},
		"no address":                  {&memberlist.Node{Name: "m2", Addr: net.IP{1, 2}, Port: 7946}, `"m2" is at 10.0.0.2:7946 in the configuration, not at invalid AddrPort`},
		"this one's name":             {named("m1", "10.0.0.2:7946"), `"m1" is at 10.0.0.1:7946 in the configuration, not at 10.0.0.2:7946`},
		"unknown, without an address": {&memberlist.Node{}, `"" is not among the configured members`},
	} {
		t.Run(name, func(t *testing.T) {
			before := a.Refused.Load()
			got := ""
			if err := r.NotifyAlive(test.node); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Fatalf("error %q, want %q", got, test.want)
			}
			if counted := a.Refused.Load() > before; counted != (test.want != "") {
				t.Fatalf("counted: %v", counted)
			}
		})
	}
}

func TestRefusesAnotherCluster(t *testing.T) {
	r := New("m1", admission(io.Discard, false), nil, nil)
	r.Configure(trio(), nil)
	foreign, member := named("a", "10.1.0.1:7946"), named("m2", "10.0.0.2:7946")
	if err := r.NotifyMerge([]*memberlist.Node{foreign, named("m3", "10.1.0.2:7946")}); err == nil {
		t.Error("a list without a member is accepted")
	}
	if err := r.NotifyMerge([]*memberlist.Node{foreign, member}); err != nil {
		t.Errorf("a list with a member and another node: %v", err)
	}
}

// TestSeeds checks that an observer's configuration gives addresses for finding members, not their names.
func TestSeeds(t *testing.T) {
	r := New("w1", admission(io.Discard, true), nil)
	r.Configure(map[string]netip.AddrPort{"w1": ap("10.0.0.9:7946")}, trio())
	if at := r.Address("m1"); at != trio()["m1"] {
		t.Errorf("m1 is at %v", at)
	}
	moved, other, odd := named("m1", "10.0.0.7:7946"), named("m9", "10.0.0.2:7946"), named("m8", "10.0.0.9:7946")
	if err := r.NotifyMerge([]*memberlist.Node{odd, other}); err != nil {
		t.Error(err)
	}
	if err := r.NotifyMerge([]*memberlist.Node{odd}); err == nil {
		t.Error("a list without any possible member is accepted")
	}
	for _, n := range []*memberlist.Node{moved, other} {
		if err := r.NotifyAlive(n); err != nil {
			t.Error(err)
		}
		n.DMax = AdvertisementProtocol
		r.NotifyJoin(n)
		if at := where(n); r.Address(n.Name) != at || !r.admission.Knows(at) || !r.Joined(electorate.Member(n.Name, at, "")) {
			t.Errorf("%s is at %v", n.Name, r.Address(n.Name))
		}
	}
	if err := r.NotifyAlive(odd); err == nil {
		t.Error("another node is at the address of this one")
	}
	if joined, left := r.TakeChanges(); len(joined) != 2 || len(left) > 0 || len(r.Recipients()) != 2 {
		t.Errorf("%v have joined, %v left, recipients %v", joined, left, r.Recipients())
	}
	other.State = memberlist.StateLeft
	r.NotifyLeave(other)
	moved.State = memberlist.StateDead
	r.NotifyLeave(moved)
	if joined, left := r.TakeChanges(); len(joined) > 0 || !slices.Equal(left, []string{"m9"}) || len(r.Recipients()) > 0 || !r.Alone() {
		t.Errorf("%v have joined, %v left, recipients %v", joined, left, r.Recipients())
	}
	r.Configure(map[string]netip.AddrPort{"w1": ap("10.0.0.9:7946")}, trio())
	if !r.admission.Knows(trio()["m1"]) || !r.admission.Knows(where(moved)) {
		t.Error("seeds or found members are not admitted")
	}
}

func TestTracksJoinedMembers(t *testing.T) {
	r := New("m1", admission(io.Discard, false), nil, nil)
	r.Configure(trio(), nil)
	r.NotifyJoin(named("m1", "10.0.0.1:7946"))
	r.NotifyJoin(named("m2", "10.0.0.2:7946"))
	r.NotifyJoin(named("m3", "10.0.0.9:7946")) // its address until the last configuration
	r.NotifyJoin(named("m9", "10.0.0.8:7946"))
	for member, want := range map[string]bool{
		"m1@10.0.0.1:7946": true, "m2@10.0.0.2:7946": true, "m2@10.0.0.2:7946#5f3a0c11": false,
		"m3@10.0.0.3:7946": false, "m3@10.0.0.9:7946": false, "m9@10.0.0.8:7946": false,
	} {
		if r.Joined(member) != want {
			t.Errorf("%s has joined: %v", member, !want)
		}
	}
	if r.Address("m9") != (netip.AddrPort{}) {
		t.Error("a node that is no member has an address")
	}
	r.NotifyLeave(named("m2", "10.0.0.2:7946"))
	if r.Joined("m2@10.0.0.2:7946") {
		t.Error("a member that has left is still there")
	}
}

// TestLocates checks where members are found: at the address of their node, unless that is another member now.
func TestLocates(t *testing.T) {
	r := New("m1", admission(io.Discard, false), nil, nil)
	r.Configure(trio(), nil)
	if at := r.Locate("m2@10.0.7.2:7946"); at != ap("10.0.0.2:7946") || r.Member("m2") != "" {
		t.Errorf("before it joins, m2 is looked for at %v, and is %q", at, r.Member("m2"))
	}
	moved := named("m2", "10.0.0.2:7946")
	moved.Meta = Description{Identity: "1", Origin: ap("10.0.7.2:7946")}.append(nil, memberlist.MetaMaxSize)
	r.NotifyJoin(moved)
	for member, want := range map[string]string{
		"m2@10.0.7.2:7946#1": "10.0.0.2:7946",
		"m2@10.0.7.2:7946#2": "10.0.7.2:7946", // a namesake of the past
		"m2@10.0.7.2:7946":   "10.0.7.2:7946",
		"m3@10.0.7.3:7946":   "10.0.0.3:7946",
		"m9@10.0.7.9:7946":   "10.0.7.9:7946",
	} {
		if at := r.Locate(member); at != ap(want) || r.Joined(member) != (r.Member("m2") == member) {
			t.Errorf("%s is at %v, want %s; joined: %t", member, at, want, r.Joined(member))
		}
	}
	list := trio()
	list["m2"] = ap("10.0.0.8:7946")
	if r.Configure(list, nil); r.Member("m2") != "" {
		t.Errorf("a node that has not been at its new address is %q", r.Member("m2"))
	}
}

func TestObserversJoinWithTheKey(t *testing.T) {
	a := admission(io.Discard, true)
	r := New("m1", a, nil, make(chan struct{}, 1))
	r.Configure(trio(), nil)
	for name, test := range map[string]struct {
		node *memberlist.Node
		want string
	}{
		"an observer":      {named("w1", "10.0.0.9:7946"), ""},
		"a member":         {named("m2", "10.0.0.2:7946"), ""},
		"a member's name":  {named("m2", "10.0.0.9:7946"), `"m2" is at 10.0.0.2:7946 in the configuration, not at 10.0.0.9:7946`},
		"a member's place": {named("w1", "10.0.0.2:7946"), `"w1" is not among the configured members, and has the address 10.0.0.2:7946 of "m2"`},
		"no name":          {named("", "10.0.0.9:7946"), `"" is not configured and has the invalid address 10.0.0.9:7946`},
		"no port":          {named("w1", "10.0.0.9:0"), `"w1" is not configured and has the invalid address 10.0.0.9:0`},
		"other family":     {named("w1", "[fd00::9]:7946"), `"w1" is not configured and has the invalid address [fd00::9]:7946`},
		"no address":       {&memberlist.Node{Name: "w1", Addr: net.IP{1, 2}, Port: 7946}, `"w1" is not configured and has the invalid address invalid AddrPort`},
	} {
		got := ""
		if err := r.NotifyAlive(test.node); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: error %q, want %q", name, got, test.want)
		}
	}

	if err := r.NotifyMerge([]*memberlist.Node{named("w1", "10.0.0.9:7946"), named("w2", "10.0.0.8:7946")}); err != nil {
		t.Errorf("observers alone: %v", err)
	}
	if err := r.NotifyMerge([]*memberlist.Node{named("w1", "10.0.0.9:7946"), named("m2", "10.1.0.2:7946")}); err == nil {
		t.Error("the list of another cluster is accepted")
	}

	r.NotifyJoin(named("w1", "10.0.0.9:7946"))
	if !r.Joined("w1@10.0.0.9:7946") || !a.AdmitPacket(ap("10.0.0.9:7946")) || !slices.Equal(r.Observers(), []string{"w1@10.0.0.9:7946"}) {
		t.Error("an observer that joined is not there")
	}
	r.NotifyJoin(named("w1", "10.0.0.7:7946")) // another address
	if r.Address("w1") != ap("10.0.0.7:7946") {
		t.Errorf("the observer is at %v", r.Address("w1"))
	}
	r.NotifyLeave(named("w1", "10.0.0.7:7946"))
	if r.Retain(map[string]bool{"w1": true}) || r.Address("w1") != ap("10.0.0.7:7946") {
		t.Error("forgotten while the machine knows it")
	}
	if !r.Retain(nil) || r.Address("w1").IsValid() {
		t.Error("remembered for ever")
	}
	for i := range MaxObservers {
		r.NotifyJoin(named(fmt.Sprint("w", i), fmt.Sprintf("10.1.%d.%d:7946", i>>8, i&255)))
	}
	if err := r.NotifyAlive(named("late", "10.0.0.9:7946")); err == nil || !strings.Contains(err.Error(), "1024") {
		t.Errorf("observer beyond the limit: %v", err)
	}
	if err := r.NotifyAlive(named("w7", "10.1.0.7:7946")); err != nil {
		t.Errorf("a present member: %v", err)
	}
}

func TestRemembered(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lib", "members")
	if members, err := ReadRemembered(file); err != nil || len(members) > 0 {
		t.Errorf("without a file: %v, %v", members, err)
	}
	want := map[string]netip.AddrPort{"m1": ap("10.0.0.1:7946"), "m2.example": ap("[2001:db8::2]:7946")}
	for range 2 {
		must.Do(t, WriteRemembered(file, want))
		if members, err := ReadRemembered(file); err != nil || !maps.Equal(members, want) {
			t.Errorf("%v, %v", members, err)
		}
	}
	if files, err := os.ReadDir(filepath.Dir(file)); err != nil || len(files) != 1 {
		t.Errorf("%v are left, %v", files, err)
	}
	if _, err := ReadRemembered(filepath.Dir(file)); err == nil {
		t.Error("a directory is read")
	}
	if err := WriteRemembered(filepath.Join(file, "members"), want); err == nil {
		t.Error("a file in a file is written")
	}
	got := parseRemembered([]byte("m1 10.0.0.1:7946\nm2 10.0.0.2\nm3 0.0.0.0:1\nm4 10.0.0.4:0\nm5 ::ffff:10.0.0.5:1\nm6 224.0.0.1:1\n" +
		"m7 [fe80::1%eth0]:1\n\nm8\nm9 10.0.0.9:1 more\n\x00 \xff\n" + strings.Repeat("x", 256) + " 10.0.0.9:1"))
	if !maps.Equal(got, map[string]netip.AddrPort{"m1": want["m1"]}) {
		t.Errorf("of an invalid file: %v", got)
	}
}

// FuzzRemembered reads arbitrary files.
func FuzzRemembered(f *testing.F) {
	f.Add([]byte("m1 10.0.0.1:7946\nm2 [2001:db8::2]:7946\n"))
	f.Add([]byte("m1\t10.0.0.1:7946\r\n\nm2 [fe80::1%x]:1 y"))
	f.Fuzz(func(t *testing.T, b []byte) {
		members := parseRemembered(b)
		if len(members) > MaxRemembered {
			t.Fatalf("%d members", len(members))
		}
		if again := parseRemembered(formatRemembered(members)); !maps.Equal(again, members) {
			t.Fatalf("%v becomes %v", members, again)
		}
	})
}

func mac(t testing.TB, s string) net.HardwareAddr {
	t.Helper()
	m, err := net.ParseMAC(s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestDescriptionTravels(t *testing.T) {
	for name, c := range map[string]Description{
		"empty":      {},
		"one":        {Hardware: []net.HardwareAddr{mac(t, "02:00:00:00:00:01")}, Campaigns: 3},
		"InfiniBand": {Hardware: []net.HardwareAddr{mac(t, strings.TrimSuffix(strings.Repeat("01:", 20), ":")), mac(t, "02:00:00:00:00:01")}},
		"many":       {Campaigns: 65535},
		"identity":   {Identity: "5f3a0c11", Hardware: []net.HardwareAddr{mac(t, "02:00:00:00:00:01")}},
		"clustered":  {Identity: "5f3a0c11", Standing: electorate.Standing{Clustered: true}, Hardware: []net.HardwareAddr{mac(t, "02:00:00:00:00:01")}},
		"bootstraps": {Standing: electorate.Standing{Bootstraps: true}},
		"moved":      {Identity: "5f3a0c11", Origin: ap("10.0.0.1:7946"), Hardware: []net.HardwareAddr{mac(t, "02:00:00:00:00:01")}},
		"IPv6":       {Origin: ap("[fd00::1]:7946")},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseDescription(c.append(nil, memberlist.MetaMaxSize))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c, got, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
				t.Fatal(diff)
			}
		})
	}
}

// TestDescriptionForEarlierReleases checks that flags have the form of a hardware address, which earlier releases read
// and never find. They refuse a description with anything else, and with it the member's identity.
func TestDescriptionForEarlierReleases(t *testing.T) {
	d := Description{Identity: "id", Standing: electorate.Standing{Clustered: true}, Hardware: []net.HardwareAddr{mac(t, "02:00:00:00:00:01")}}
	if got, want := d.append(nil, memberlist.MetaMaxSize), []byte{1, 0, 0, 130, 'i', 'd', 1, 1, 6, 2, 0, 0, 0, 0, 1}; !bytes.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for flags := range 256 { // of later releases
		if _, err := parseDescription([]byte{1, 0, 0, 1, byte(flags)}); err != nil {
			t.Errorf("flags %d: %v", flags, err)
		}
	}
}

func TestDescriptionFits(t *testing.T) {
	var c Description
	for range 200 {
		c.Hardware = append(c.Hardware, mac(t, "02:00:00:00:00:01"))
	}
	c.Campaigns = 1 << 20
	b := c.append(nil, memberlist.MetaMaxSize)
	got, err := parseDescription(b)
	if err != nil {
		t.Fatal(err)
	}
	if len(b) > memberlist.MetaMaxSize || len(got.Hardware) != (memberlist.MetaMaxSize-3)/7 || got.Campaigns != 65535 {
		t.Fatalf("%d bytes with %d addresses, %d candidacies", len(b), len(got.Hardware), got.Campaigns)
	}
}

func FuzzParseDescription(f *testing.F) {
	f.Add(Description{Hardware: []net.HardwareAddr{mac(f, "02:00:00:00:00:01")}, Campaigns: 2}.append(nil, memberlist.MetaMaxSize))
	f.Add(Description{Identity: "1", Origin: ap("10.0.0.1:7946")}.append(nil, memberlist.MetaMaxSize))
	f.Add([]byte{2, 0, 0})
	f.Add([]byte{1, 0, 0, 6, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := parseDescription(b)
		if err != nil {
			return
		}
		again, err := parseDescription(c.append(nil, len(b)+2)) // flags may be in another place
		if diff := cmp.Diff(c, again, cmpopts.EquateComparable(netip.AddrPort{})); err != nil || diff != "" {
			t.Fatalf("%x: %v\n%s", b, err, diff)
		}
	})
}
