package report

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/bgp/bfd"
	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/wait"
)

func ip(text string) netip.Addr { return netip.MustParseAddr(text) }

// TestOf builds the report of a node with all kinds of entries.
func TestOf(t *testing.T) {
	since := time.Date(2026, 11, 27, 12, 0, 0, 123, time.UTC)
	got := Of(v1alpha1.NodeState{
		Version: "v1", Draining: "memory",
		VIPs: []v1alpha1.NodeVIP{
			{Name: "cp", Address: "10.99.0.10", State: "announced", Since: metav1.NewTime(since), Reason: "all checks pass"},
			{Name: "cp", Address: "fd00::10", State: "blocked", Reason: "no such link"},
		},
	}, []bgp.Session{
		{Name: "10.0.1.254", ASN: 64500, State: bgp.Established, Since: since, Drops: 7, BFD: &bfd.Status{State: bfd.Up, In: 9}},
		{Name: "eth1", State: "active", Reason: "connection refused"},
	}, slices.Values([]Address{
		{Addr: ip("10.0.0.255"), Announced: true}, {Addr: ip("10.0.1.0"), Announced: true}, {Addr: ip("10.0.1.1"), Announced: true},
		{Addr: ip("10.0.1.2"), Reason: "no endpoint"},
		{Addr: ip("10.0.1.3"), Held: true}, {Addr: ip("10.0.1.4"), Held: true, Announced: true},
		{Addr: ip("10.0.1.5")}, // held by another node
		{Addr: ip("10.0.1.6"), Reason: "no endpoint"}, {Addr: ip("10.0.1.7"), Reason: "no endpoint"},
		{Addr: ip("fd00::4"), Announced: true}, {Addr: ip("fd00::5"), Announced: true}, {Addr: ip("fd00::6"), Announced: true}, {Addr: ip("fd00::7"), Announced: true},
	}))
	at := metav1.NewTime(since.Truncate(time.Second))
	want := v1alpha1.NodeState{
		Version: "v1", Draining: "memory", Established: "1/2", Up: "1/2", Announced: 8, Held: 2,
		Sessions: []v1alpha1.NodeSession{
			{Peer: "10.0.1.254", ASN: "64500", State: "established", Since: at, BFD: "up"},
			{Peer: "eth1", ASN: "external", State: "down", Reason: "connection refused"},
		},
		VIPs: []v1alpha1.NodeVIP{
			{Name: "cp", Address: "10.99.0.10", State: "announced", Since: at, Reason: "all checks pass"},
			{Name: "cp", Address: "fd00::10", State: "blocked", Reason: "no such link"},
		},
		Services: v1alpha1.NodeServices{
			Announced: []string{"10.0.0.255-10.0.1.1", "10.0.1.4", "fd00::4/126"}, Held: []string{"10.0.1.3-10.0.1.4"},
			Withdrawn: []v1alpha1.NodeWithdrawn{{Reason: "no endpoint", Addresses: []string{"10.0.1.2", "10.0.1.6/31"}}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Ten thousand consecutive addresses are one range. With gaps, or with a reason each, not all fit.
func TestBounds(t *testing.T) {
	tell := func(step, n int, edit func(i int, a *Address)) v1alpha1.NodeServices {
		return Of(v1alpha1.NodeState{}, nil, func(yield func(Address) bool) {
			a := Address{Addr: ip("10.0.0.0")}
			for i := range n {
				edit(i, &a)
				yield(a)
				for range step {
					a.Addr = a.Addr.Next()
				}
			}
		}).Services
	}
	announced := func(_ int, a *Address) { a.Announced = true }
	if got := tell(1, 10000, announced); !slices.Equal(got.Announced, []string{"10.0.0.0-10.0.39.15"}) || got.More != 0 {
		t.Errorf("reported %v and %d more", got.Announced, got.More)
	}
	if got := tell(2, 10000, announced); len(got.Announced) != mostRanges || got.More != 10000-mostRanges {
		t.Errorf("reported %d ranges and %d more", len(got.Announced), got.More)
	}
	got := tell(1, 100, func(i int, a *Address) { a.Reason = fmt.Sprint("reason ", i) })
	if len(got.Withdrawn) != mostReasons || got.More != 36 {
		t.Errorf("reported %d reasons and %d more", len(got.Withdrawn), got.More)
	}
	got = tell(2, mostRanges+500, func(i int, a *Address) { a.Reason = fmt.Sprint("reason ", i%2) })
	if len(got.Withdrawn) != 2 || len(got.Withdrawn[0].Addresses)+len(got.Withdrawn[1].Addresses) != mostRanges || got.More != 500 {
		t.Errorf("reported %d reasons and %d more", len(got.Withdrawn), got.More)
	}
}

// TestFits checks that the CRD limits every text and list, and accepts the report of a node beyond all limits.
func TestFits(t *testing.T) {
	data := must.Get[[]byte](t)(os.ReadFile("../../manifests/crds/herald.dev_nodestatuses.yaml"))
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct{ OpenAPIV3Schema schema }
			}
		}
	}
	must.Do(t, yaml.Unmarshal(data, &crd))
	long := strings.Repeat("é", 10*longest)
	var sessions []bgp.Session
	s := v1alpha1.NodeState{Version: "v0.1.0-1234-g0123456789ab-dirty", Draining: long}
	for range 2 * mostListed {
		since := time.Now()
		sessions = append(sessions, bgp.Session{
			Name: "fe80:1111:2222:3333:4444:5555:6666:7777%interface-of-15", ASN: math.MaxUint32, State: bgp.Established, Since: since,
			Reason: long, BFD: &bfd.Status{State: bfd.AdminDown},
		})
		s.VIPs = append(s.VIPs, v1alpha1.NodeVIP{
			Name: long[:62], Address: "fd00:1111:2222:3333:4444:5555:6666:7777", Since: metav1.NewTime(since), State: "lingering", Reason: long,
		})
	}
	state := Of(s, sessions, func(yield func(Address) bool) {
		a := Address{Addr: ip("fd00:1111:2222:3333:4444:5555:6666:7001")}
		for i := range 12 * mostRanges {
			a.Announced, a.Held, a.Reason = i%12 < 3, i%12 < 6, fmt.Sprint(min(i/12, mostReasons-1), long)
			yield(a)
			if a.Addr = a.Addr.Next(); i%3 == 2 {
				a.Addr = a.Addr.Next()
			}
		}
	})
	if r := state.Services; len(state.Sessions) != mostListed || len(state.VIPs) != mostListed || len(r.Announced) != mostRanges ||
		len(r.Held) != mostRanges || len(r.Withdrawn) != mostReasons || r.More == 0 {
		t.Errorf("%d sessions, %d VIPs, ranges: %d announced, %d held, %d reasons, %d more: the report is not full",
			len(state.Sessions), len(state.VIPs), len(r.Announced), len(r.Held), len(r.Withdrawn), r.More)
	}
	for name, state := range map[string]v1alpha1.NodeState{"too much": state, "nothing": Of(v1alpha1.NodeState{}, nil, func(func(Address) bool) {})} {
		text := must.Get[[]byte](t)(json.Marshal(state))
		if most := 1 << 20 * 3 / 2; len(text) > most {
			t.Errorf("%s: %d bytes, but etcd accepts %d", name, len(text), most)
		}
		var value map[string]any
		must.Do(t, json.Unmarshal(text, &value))
		status := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"]
		status.judge(t, name, value)
		for _, section := range []string{"", "services"} { // these objects are not replaced as a whole
			part, fields := status, value
			if section != "" {
				part, fields = status.Properties[section], value[section].(map[string]any)
			}
			for field := range part.Properties {
				if fields[field] == nil {
					t.Errorf("%s: %s of %q is not written, so the value of another client would stay", name, field, section)
				}
			}
		}
	}
}

// schema is the limits in a CRD.
type schema struct {
	Type, Format        string
	MaxLength, MaxItems int
	Items               *schema
	Properties          map[string]schema
}

// judge reports values without a limit or beyond it.
func (s schema) judge(t *testing.T, at string, value any) {
	switch v := value.(type) {
	case string:
		if n := utf8.RuneCountInString(v); s.Type != "string" || s.Format == "" && (s.MaxLength == 0 || n > s.MaxLength) {
			t.Errorf("%s: %d characters violate %+v", at, n, s)
		}
	case []any:
		if s.Type != "array" || s.MaxItems == 0 || len(v) > s.MaxItems {
			t.Errorf("%s: %d items violate %+v", at, len(v), s)
			return
		}
		for _, item := range v {
			s.Items.judge(t, at+"[]", item)
		}
	case map[string]any:
		for name, item := range v {
			property, ok := s.Properties[name]
			if !ok {
				t.Errorf("%s has no %s", at, name)
			}
			property.judge(t, at+"."+name, item)
		}
	}
}

// TestRead queries a parsed report.
func TestRead(t *testing.T) {
	read := Read(v1alpha1.NodeServices{
		Announced: []string{"fd00::4/126", "10.0.0.1-10.0.0.9", "nonsense", "10.0.0.20"}, Held: []string{"10.0.0.9"},
		Withdrawn: []v1alpha1.NodeWithdrawn{{Reason: "b", Addresses: []string{"10.0.0.30/31"}}, {Reason: "a", Addresses: []string{"10.0.0.10", "10.0.0.40"}}},
	})
	for addr, want := range map[string]Answer{
		"10.0.0.1": {Address: Address{Announced: true}}, "10.0.0.5": {Address: Address{Announced: true}}, "fd00::6": {Address: Address{Announced: true}},
		"10.0.0.20": {Address: Address{Announced: true}}, "10.0.0.9": {Address: Address{Announced: true, Held: true}},
		"10.0.0.10": {Address: Address{Reason: "a"}}, "10.0.0.31": {Address: Address{Reason: "b"}}, "10.0.0.40": {Address: Address{Reason: "a"}},
		"10.0.0.0": {}, "10.0.0.41": {}, "fd00::8": {},
	} {
		want.Addr = ip(addr)
		if got := read.Of(ip(addr)); got != want {
			t.Errorf("%s: %+v, want %+v", addr, got, want)
		}
	}
	long := Read(v1alpha1.NodeServices{Withdrawn: []v1alpha1.NodeWithdrawn{{Reason: strings.Repeat("é", 1000), Addresses: []string{"10.0.0.1"}}}})
	if got := long.Of(ip("10.0.0.1")).Reason; got != strings.Repeat("é", longest-1)+"…" {
		t.Errorf("a reason of 1,000 characters is read as %d: %q", len(got), got)
	}
	read.partial = true
	if got := read.Of(ip("10.0.0.0")); !got.Unknown {
		t.Errorf("%+v, want Unknown", got)
	}
	if got := (*Report)(nil).Of(ip("10.0.0.0")); got != (Answer{Address: Address{Addr: ip("10.0.0.0")}}) {
		t.Errorf("a nil report returns %+v", got)
	}
}

// desk is a reporter with a server in virtual time.
type desk struct {
	*Reporter
	mu     sync.Mutex
	uid    types.UID
	state  v1alpha1.NodeState
	fails  error
	stored *v1alpha1.NodeStatus // the object on the server
	writes []string             // time and content of each
	began  time.Time
}

func start(t *testing.T, fails error, test func(d *desk, stop func())) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{uid: "u", state: v1alpha1.NodeState{Version: "1"}, began: time.Now(), fails: fails}
		d.Reporter = New(Options{
			Node: "n1", Owner: func() (uid types.UID, ok bool) { d.set(func() { uid = d.uid }); return uid, uid != "" },
			Fingerprint: func() any { return d.now() }, State: d.now,
			Apply: func(_ context.Context, s *v1alpha1.NodeStatus) error {
				d.mu.Lock()
				defer d.mu.Unlock()
				d.writes = append(d.writes, fmt.Sprint(time.Since(d.began).Seconds(), " ", s.Status.Version, " ", s.OwnerReferences[0].UID))
				if d.fails == nil {
					d.stored = s
					d.Seen(s)
				}
				return d.fails
			},
		})
		test(d, wait.Go(t, d.Run))
	})
}

// set calls f with the lock.
func (d *desk) set(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

func (d *desk) now() (s v1alpha1.NodeState) {
	d.set(func() { s = d.state })
	return s
}

func (d *desk) want(t *testing.T, writes ...string) {
	t.Helper()
	synctest.Wait()
	d.set(func() {
		if diff := cmp.Diff(writes, d.writes); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
	})
}

// TestRate: a change is written within a second, then at most every five seconds; at rest nothing is written.
func TestRate(t *testing.T) {
	start(t, nil, func(d *desk, stop func()) {
		time.Sleep(24*time.Hour - 500*time.Millisecond)
		d.want(t, "0 1 u")
		d.set(func() { d.writes, d.began = nil, time.Now() })
		for _, v := range strings.Split("23456789", "") {
			d.set(func() { d.state.Version = v })
			time.Sleep(time.Second)
		}
		time.Sleep(time.Hour)
		d.want(t, "0.5 2 u", "5.5 7 u", "10.5 9 u")
		d.Seen(nil) // deleted by another client
		time.Sleep(time.Hour)
		d.want(t, "0.5 2 u", "5.5 7 u", "10.5 9 u", "3608.5 9 u")
		d.set(func() { d.uid, d.state.Version = "", "10" }) // the node is gone
		time.Sleep(time.Hour)
		d.set(func() { d.uid = "v" })
		time.Sleep(2 * time.Second)
		d.want(t, "0.5 2 u", "5.5 7 u", "10.5 9 u", "3608.5 9 u", "10808.5 10 v")
		d.set(func() { d.state.Version = "11" })
		stop()
		d.want(t, "0.5 2 u", "5.5 7 u", "10.5 9 u", "3608.5 9 u", "10808.5 10 v", "10810 11 v")
	})
}

// TestSpoiled: an edit by another client is reverted within a second, repeated edits after growing pauses. Changes are
// written meanwhile as usual.
func TestSpoiled(t *testing.T) {
	start(t, nil, func(d *desk, stop func()) {
		see := func(edit func(*v1alpha1.NodeStatus)) {
			var s *v1alpha1.NodeStatus
			d.set(func() { s = d.stored.DeepCopy() })
			edit(s)
			d.Seen(s)
		}
		spoil := func() { see(func(s *v1alpha1.NodeStatus) { s.Status.Draining = "not by Herald" }) }
		time.Sleep(time.Hour - 500*time.Millisecond)
		d.want(t, "0 1 u")
		see(func(s *v1alpha1.NodeStatus) { s.Labels = map[string]string{"not": "Heralds"} })
		time.Sleep(time.Hour)
		d.want(t, "0 1 u")
		spoil()
		time.Sleep(time.Hour)
		see(func(s *v1alpha1.NodeStatus) { s.OwnerReferences = nil })
		time.Sleep(time.Hour)
		d.want(t, "0 1 u", "7200 1 u", "10800 1 u")

		d.set(func() { d.writes, d.began = nil, time.Now() })
		for range 3600 {
			spoil()
			time.Sleep(time.Second)
		}
		n := 0
		d.set(func() { n = len(d.writes) })
		if n < 12 || n > 20 {
			t.Errorf("%d writes in an hour with an edit every second: %s", n, d.writes)
		}
		time.Sleep(pauses.Min)
		d.set(func() { d.writes, d.began, d.state.Version = nil, time.Now(), "2" })
		spoil()
		time.Sleep(time.Second)
		d.want(t, "0.5 2 u")
		stop()
	})
}

// TestRefused: a server that refuses writes gets them after growing pauses.
func TestRefused(t *testing.T) {
	start(t, errors.New("no"), func(d *desk, stop func()) {
		time.Sleep(time.Minute + time.Millisecond)
		d.want(t, "0 1 u", "5 1 u", "15 1 u", "35 1 u")
		time.Sleep(time.Hour)
		synctest.Wait()
		n := 0
		d.set(func() { n = len(d.writes) })
		if n > 20 {
			t.Errorf("%d requests in an hour", n)
		}
		d.set(func() { d.fails = nil })
		time.Sleep(pauses.Max)
		d.set(func() { n = len(d.writes) })
		time.Sleep(time.Hour)
		synctest.Wait()
		d.set(func() {
			if len(d.writes) != n {
				t.Errorf("%d requests after one was accepted", len(d.writes)-n)
			}
		})
		stop()
	})
}
