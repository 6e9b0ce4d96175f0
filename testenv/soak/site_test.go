package soak

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/testenv/must"
)

// All configurations that a soak writes are valid, except the deliberately bad one.
func TestSpeakerConfigs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "herald.yaml")
	load := func(c speakerConfig) (*config.Config, error) {
		must.Do(t, c.write(file))
		return config.Load(file)
	}
	plain := (&site{}).speakerConfig("m2")
	c, err := load(plain)
	must.Do(t, err)
	if c.NodeName != "m2" || len(c.BGP.Peers) != 4 || c.BGP.Peers[0].BFD != nil {
		t.Errorf("configured %+v", c)
	}

	fast := (&site{Options: Options{BFD: 50 * time.Millisecond}}).speakerConfig("m2")
	if c, err = load(fast); err != nil {
		t.Fatal(err)
	}
	for _, p := range c.BGP.Peers {
		if p.BFD == nil || p.BFD.Interval.Duration != 50*time.Millisecond || p.BFD.Multiplier != 3 {
			t.Errorf("peer %v has BFD %+v", p.Address, p.BFD)
		}
	}

	for kind, bad := range map[Kind]bool{MEDRaised: false, Recoloured: false, BadFile: true} {
		changed := plain
		changed.change(Fault{Kind: kind})
		if changed == plain {
			t.Errorf("%s changes nothing", kind)
		}
		if _, err := load(changed); (err != nil) != bad {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// The removed master keeps its own list, and a moved one is in all lists.
func TestLists(t *testing.T) {
	for _, test := range []struct {
		kind          Kind
		master        string
		bind, members string
	}{
		{MemberRemoved, "m1", "10.4.0.1:7946", `{m1: "10.4.0.1:7946", m3: "10.4.0.3:7946"}`},
		{MemberRemoved, "m2", "10.4.0.2:7946", `{m1: "10.4.0.1:7946", m2: "10.4.0.2:7946", m3: "10.4.0.3:7946"}`},
		{MemberMoved, "m2", "10.4.0.22:7946", `{m1: "10.4.0.1:7946", m2: "10.4.0.22:7946", m3: "10.4.0.3:7946"}`},
		{MemberMoved, "m3", "10.4.0.3:7946", `{m1: "10.4.0.1:7946", m2: "10.4.0.22:7946", m3: "10.4.0.3:7946"}`},
	} {
		c := (&site{Options: Options{Flat: true}}).speakerConfig(test.master)
		c.change(Fault{Kind: test.kind, Master: "m2"})
		if c.Bind() != test.bind || c.Members() != test.members {
			t.Errorf("%s of m2: %s binds %s, lists %s", test.kind, test.master, c.Bind(), c.Members())
		}
	}
}

func TestRouterConfig(t *testing.T) {
	src, dst := "../topologies/bgp/r1.conf", filepath.Join(t.TempDir(), "frr.conf")
	for interval, want := range map[time.Duration]int{0: 0, 300 * time.Millisecond: 6} {
		must.Do(t, (&site{Options: Options{BFD: interval}}).routerConfig(src, dst))
		data := must.Get[[]byte](t)(os.ReadFile(dst))
		if got := strings.Count(string(data), " bfd 3 300 300\n"); got != want {
			t.Errorf("%d neighbours have BFD, want %d:\n%s", got, want, data)
		}
		if !strings.Contains(string(data), "\n neighbor fd00:1:3::1 remote-as 64512\n") {
			t.Errorf("a neighbour is missing:\n%s", data)
		}
	}
}
