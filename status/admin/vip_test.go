package admin_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/netutil/newconns"
	"github.com/herald-vip/herald/speaker"
	"github.com/herald-vip/herald/status/admin"
)

func TestVIPAssess(t *testing.T) {
	addr := netip.MustParseAddr("10.99.0.10")
	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	peer := func(name string, since int, routes ...string) bgp.Session {
		p := bgp.Session{Name: name, Since: at(since), State: bgp.Established}
		for _, r := range routes {
			p.Advertised = append(p.Advertised, netip.MustParsePrefix(r))
		}
		return p
	}
	down := bgp.Session{Name: "r2", Since: at(40), State: "active", Reason: "refused"}
	for _, test := range []struct {
		name    string
		vip     admin.VIP // decided at 20
		blocked time.Time
		peers   []bgp.Session
		state   speaker.Stage
		since   int
		told    string
		why     string
	}{
		{
			name: "sent to all", vip: admin.VIP{Status: speaker.Status{Stage: speaker.Announced, Peers: []string{"r1"}}},
			peers: []bgp.Session{peer("r1", 10, "10.99.0.10/32"), down},
			state: "announced", since: 20, told: "announced", why: "healthy",
		}, {
			name: "sent to one of two, later", vip: admin.VIP{Status: speaker.Status{Stage: speaker.Announced, Peers: []string{"r1", "r2"}}},
			peers: []bgp.Session{peer("r1", 30, "10.99.0.11/32", "10.99.0.10/32"), down},
			state: "announced", since: 40, told: "announced to 1 of 2 peers", why: "healthy; not sent to r2, which is active: refused",
		}, {
			name: "the only router is gone", vip: admin.VIP{Status: speaker.Status{Stage: speaker.Announced, Peers: []string{"r2"}}},
			peers: []bgp.Session{peer("r1", 10, "10.99.0.10/32"), down},
			state: admin.Unsent, since: 40, told: "announced to 0 of 1 peers", why: "healthy; not sent to r2, which is active: refused",
		}, {
			name: "held back by sessions that are up", vip: admin.VIP{Status: speaker.Status{Stage: speaker.Demoted, Peers: []string{"r1", "r3"}}},
			peers: []bgp.Session{peer("r1", 10), peer("r3", 15)},
			state: admin.Unsent, since: 20, told: "demoted to 0 of 2 peers", why: "healthy; not sent to r1, which is established, and to 1 more",
		}, {
			name: "no peer", vip: admin.VIP{Status: speaker.Status{Stage: speaker.Announced}},
			peers: []bgp.Session{peer("r1", 10)},
			state: admin.Unsent, since: 20, told: "announced to 0 of 0 peers", why: "healthy",
		}, {
			name: "blocked", vip: admin.VIP{Status: speaker.Status{Stage: speaker.Announced, Error: "no right", Peers: []string{"r1"}}}, blocked: at(25),
			peers: []bgp.Session{peer("r1", 10)},
			state: admin.Blocked, since: 25, told: "blocked", why: "no right",
		}, {
			name: "blocked before it was decided", vip: admin.VIP{Status: speaker.Status{Stage: speaker.Withdrawn, Error: "no right"}}, blocked: at(15),
			state: admin.Blocked, since: 20, told: "blocked", why: "no right",
		}, {
			name: "twice on the host", vip: admin.VIP{Status: speaker.Status{Stage: speaker.Announced, Error: "twice", Peers: []string{"r1"}}},
			peers: []bgp.Session{peer("r1", 10, "10.99.0.10/32")},
			state: "announced", since: 20, told: "announced", why: "twice",
		}, {
			name: "on a flat layer 2", vip: admin.VIP{Status: speaker.Status{Stage: speaker.Announced, Announce: speaker.ByARP}},
			state: "announced", since: 20, told: "announced", why: "healthy",
		}, {
			name: "withdrawn", vip: admin.VIP{Status: speaker.Status{Stage: speaker.Withdrawn, Peers: []string{"r1"}}},
			peers: []bgp.Session{peer("r1", 10)},
			state: "withdrawn", since: 20, told: "withdrawn", why: "healthy",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := test.vip
			v.Address, v.Since, v.Reason = addr, at(20), "healthy"
			if v.Announce == "" {
				v.Announce = speaker.ByBGP
			}
			var sent []string
			for _, p := range test.peers {
				if slices.Contains(p.Advertised, netip.PrefixFrom(addr, 32)) {
					sent = append(sent, p.Name)
				}
			}
			v.Assess(test.blocked, test.peers, sent)
			if v.State != test.state || !v.Since.Equal(at(test.since)) || v.Told() != test.told || v.Why(at(50)) != test.why {
				t.Errorf("%s since %v, told %q: %q", v.State, v.Since.Unix(), v.Told(), v.Why(at(50)))
			}
			for _, name := range v.Sent {
				if !slices.Contains(v.Peers, name) {
					t.Errorf("sent to %s", name)
				}
			}
		})
	}
}

// A VIP is quiet when it has been announced for a minute without a new connection, and as far as is known.
func TestVIPQuiet(t *testing.T) {
	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	for _, test := range []struct {
		name  string
		state speaker.Stage
		count *newconns.Count
		now   int
		why   string
	}{
		{"not counted", speaker.Announced, nil, 900, "healthy"},
		{"not yet", speaker.Announced, &newconns.Count{}, 159, "healthy"},
		{"none ever", speaker.Announced, &newconns.Count{}, 160, "healthy; no new TCP connection for 1m0s"},
		{"none any more", speaker.Announced, &newconns.Count{Arrived: 7, Last: at(200)}, 921, "healthy; no new TCP connection for 12m1s"},
		{"none since it is back", speaker.Announced, &newconns.Count{Arrived: 7, Last: at(10)}, 159, "healthy"},
		{"counting began later", speaker.Announced, &newconns.Count{Since: at(200)}, 259, "healthy"},
		{"withdrawn", speaker.Withdrawn, &newconns.Count{}, 900, "healthy"},
		{"no router has it", admin.Unsent, &newconns.Count{}, 900, "healthy"},
	} {
		v := admin.VIP{State: test.state, Status: speaker.Status{Since: at(100), Reason: "healthy"}, Arrivals: test.count}
		if got := v.Why(at(test.now)); got != test.why {
			t.Errorf("%s: %q, want %q", test.name, got, test.why)
		}
	}
}
