package admin_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/bgp/bfd"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/internal/seconds"
	"github.com/herald-vip/herald/service/announce"
	"github.com/herald-vip/herald/speaker"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/must"
)

type daemon struct {
	status   admin.Status
	services []admin.Service
	drained  []string
	undrains int
	lingers  bool
	refuse   error

	removed []string
}

func (d *daemon) Status() admin.Status { return d.status }

func (d *daemon) Services() []admin.Service { return d.services }

func (d *daemon) Drain(ctx context.Context, reason string, untilUndrain bool, deadline time.Duration) error {
	if untilUndrain {
		reason += ", until undrain"
	}
	d.drained = append(d.drained, reason)
	if d.lingers {
		<-ctx.Done()
		return ctx.Err()
	}
	return d.refuse
}

func (d *daemon) Undrain() error { d.undrains++; return d.refuse }

func (d *daemon) RemoveMember(_ context.Context, member string) error {
	d.removed = append(d.removed, member)
	return d.refuse
}

// serve opens a socket for d and closes it with the test.
func serve(t *testing.T, path string, d admin.Daemon) {
	t.Helper()
	s := must.Get[*admin.Server](t)(admin.Listen(path, slog.New(slog.DiscardHandler), d))
	done := make(chan error)
	go func() { done <- s.Serve() }()
	t.Cleanup(func() {
		s.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket is left behind: %v", err)
		}
	})
}

func status() admin.Status {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return admin.Status{
		Node: "m1", Version: "v1.2.3", Started: began,
		Config: admin.Config{File: "/etc/herald/herald.yaml", Generation: 2, Loaded: began},
		VIPs: []admin.VIP{{
			Status: speaker.Status{Name: "control-plane", Address: netip.MustParseAddr("10.99.0.10"), Interface: "lo", Stage: "announced", Since: began.Add(time.Minute), Reason: "apiserver healthy", Decided: true, Announce: "bgp", Peers: []string{"10.0.1.254"}, LastWithdrawal: &speaker.Withdrawal{At: began, Took: seconds.Duration(2 * time.Millisecond), Reason: "apiserver: refused"}}, State: "announced", Restored: 1, Sent: []string{"10.0.1.254"},
		}},
		Checks: []health.Verdict{{Name: "apiserver", State: health.Healthy, Reason: "200", Warning: "expires soon", Since: began, Latency: seconds.Duration(1500 * time.Microsecond), Passes: 9}},
		Peers: []bgp.Session{{
			Name: "10.0.1.254", Address: netip.MustParseAddr("10.0.1.254"), ASN: 64500, State: "established", Since: began,
			Advertised: []netip.Prefix{netip.MustParsePrefix("10.99.0.10/32")},
		}},
	}
}

// addresses compares addresses and prefixes.
var addresses = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

func TestStatusTravelsWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "herald.sock")
	serve(t, path, &daemon{status: status()})
	got := must.Get[admin.Status](t)(admin.NewClient(path).Status(t.Context()))
	if diff := cmp.Diff(status(), got, addresses); diff != "" {
		t.Errorf("(-sent +received):\n%s", diff)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket mode %v, %v; want 0600", info.Mode(), err)
	}
}

func TestDrainAndUndrain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "herald.sock")
	d := &daemon{}
	serve(t, path, d)
	c := admin.NewClient(path)
	must.Do(t, c.Drain(t.Context(), "kernel upgrade", true, 0, 0))
	must.Do(t, c.Drain(t.Context(), "", false, 0, 0))
	must.Do(t, c.Undrain(t.Context()))
	if err := c.RemoveMember(t.Context(), "m3"); err != nil || !slices.Equal(d.removed, []string{"m3"}) {
		t.Errorf("%v lost their votes: %v", d.removed, err)
	}
	if diff := cmp.Diff([]string{"kernel upgrade, until undrain", "herald drain"}, d.drained); diff != "" || d.undrains != 1 {
		t.Errorf("undrained %d times, drained (-want +got):\n%s", d.undrains, diff)
	}
	// However short the time is that a drain is waited for, it has begun.
	d.drained, d.lingers = nil, true
	if err := c.Drain(t.Context(), "kernel upgrade", false, 0, time.Nanosecond); err != nil || len(d.drained) != 1 {
		t.Errorf("%v after one that lingers: %v", d.drained, err)
	}
	d.lingers, d.refuse = false, errors.New("link eth9 is stuck")
	for what, err := range map[string]error{"drain": c.Drain(t.Context(), "x", false, 0, 0), "undrain": c.Undrain(t.Context()), "removal": c.RemoveMember(t.Context(), "m3")} {
		if err == nil || !strings.Contains(err.Error(), "link eth9 is stuck") {
			t.Errorf("a failed %s says %v", what, err)
		}
	}
}

func TestNobodyThere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "herald.sock")
	_, err := admin.NewClient(path).Status(t.Context())
	if err == nil || !strings.Contains(err.Error(), "no herald answers on "+path) {
		t.Errorf("got %v", err)
	}
}

// A predecessor that was killed leaves its socket; that never blocks a start.
func TestStaleSocketIsTakenOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "herald.sock")
	l := must.Get[*net.UnixListener](t)(net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}))
	l.SetUnlinkOnClose(false)
	l.Close()
	serve(t, path, &daemon{})
	if _, err := admin.NewClient(path).Status(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestLiveSocketIsNotTakenOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "herald.sock")
	serve(t, path, &daemon{status: status()})
	if _, err := admin.Listen(path, slog.New(slog.DiscardHandler), &daemon{}); err == nil || !strings.Contains(err.Error(), "another herald answers on") {
		t.Errorf("got %v", err)
	}
	if s, err := admin.NewClient(path).Status(t.Context()); err != nil || s.Node != "m1" {
		t.Errorf("the first one no longer answers: %v", err)
	}
}

// flat is the status of a holder on a flat layer 2.
func flat() admin.Status {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	return admin.Status{
		Node: "m1", Version: "v1.2.3", Started: at, Config: admin.Config{File: "/etc/herald/herald.yaml", Generation: 1},
		VIPs: []admin.VIP{{
			Status: speaker.Status{Name: "control-plane", Address: netip.MustParseAddr("10.3.0.100"), Interface: "eth0", Announce: "arp", Stage: "announced", Since: at, Decided: true, Reason: "apiserver healthy"}, State: "announced", Conflict: "02:00:00:00:00:09", Conflicts: 3,
		}},
		Election: &admin.Election{
			Quorum: "majority", Lease: 0.6, Fence: "the kernel has no nftables",
			Exposed: "/etc/herald/gossip.key has mode 0644",
			Members: []lease.Member{
				{Name: "m1", Address: netip.MustParseAddrPort("10.3.0.1:7946"), Voter: true, Self: true, Alive: true, Campaigns: 1},
				{Name: "m2", Address: netip.MustParseAddrPort("10.3.0.2:7946"), Voter: true, Alive: true, Received: at.Add(59 * time.Second), Campaigns: 1},
				{Name: "m3", Address: netip.MustParseAddrPort("10.3.0.3:7946"), Voter: true, Problem: "no packet yet"},
			},
			Leases: []admin.Lease{
				{
					LeaseStatus: lease.LeaseStatus{Lease: "control-plane", Holder: "m1", Epoch: 7, Votes: []string{"m1", "m2"}, Needed: 2, Campaigning: true},
					Left:        seconds.Duration(432100 * time.Microsecond),
				},
				{LeaseStatus: lease.LeaseStatus{Lease: "registry", Needed: 2}, Reason: "no member campaigns for it"},
			},
		},
	}
}

// wantText checks the text of a status at a time.
func wantText(t *testing.T, s admin.Status, at time.Time, want string) {
	t.Helper()
	var out strings.Builder
	must.Do(t, s.WriteText(&out, at))
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWriteTextOfElection(t *testing.T) {
	s := flat()
	want := `herald v1.2.3 on m1, up 1m0s, configuration /etc/herald/herald.yaml generation 1

VIP             ADDRESS      LINK   STATE       FOR    WHY
control-plane   10.3.0.100   eth0   announced   1m0s   apiserver healthy; ALSO USED BY 02:00:00:00:00:09

KEY EXPOSED: /etc/herald/gossip.key has mode 0644
NO FENCE: the kernel has no nftables
LEASE           HOLDER   EPOCH   VOTES              LEFT    WHY
control-plane   m1       7       m1 m2 (2 needed)   432ms   -
registry        -        0       -                  -       no member campaigns for it

MEMBER   ADDRESS         VOTES   STATE       HEARD    STANDS FOR   WHY
m1       10.3.0.1:7946   yes     this node   -        1            -
m2       10.3.0.2:7946   yes     alive       1s ago   1            -
m3       10.3.0.3:7946   yes     silent      -        0            no packet yet
`
	wantText(t, s, s.Started.Add(time.Minute), want)
}

func TestReady(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(*admin.Status)
		ready bool
		why   string
	}{
		{name: "announcing", spoil: func(*admin.Status) {}, ready: true, why: "announcing"},
		{name: "draining", spoil: func(s *admin.Status) { s.Draining = "upgrade" }, why: "draining: upgrade"},
		{name: "no verdict yet", spoil: func(s *admin.Status) { s.VIPs[0].Decided = false }, why: "vip control-plane 10.99.0.10: apiserver healthy"},
		{name: "cannot bind", spoil: func(s *admin.Status) { s.VIPs[0].State, s.VIPs[0].Error = admin.Blocked, "no link" }, why: "vip control-plane 10.99.0.10: no link"},
		{name: "on this host twice", spoil: func(s *admin.Status) { s.VIPs[0].Error = "twice" }, ready: true, why: "announcing"},
		{name: "nobody listens", spoil: func(s *admin.Status) { s.Peers[0].Advertised = nil }, why: "no peer has been sent a route"},
		{name: "holder on a flat layer 2", spoil: func(s *admin.Status) { *s = flat() }, ready: true, why: "announcing"},
		{name: "services not known", spoil: func(s *admin.Status) { s.Services = &admin.Services{} }, why: "services: the Kubernetes API has not sent all objects yet"},
		{name: "routes refused", spoil: func(s *admin.Status) { s.Services = &admin.Services{Synced: true, Counts: announce.Counts{Failing: 2}} }, why: "services: the BGP speaker refuses 2 routes"},
		{name: "services for nobody", spoil: func(s *admin.Status) {
			s.VIPs, s.Peers, s.Services = nil, nil, &admin.Services{Synced: true, Counts: announce.Counts{Routes: 1}}
		}, why: "no peer has been sent a route"},
		{name: "no services yet", spoil: func(s *admin.Status) { s.VIPs, s.Services = nil, &admin.Services{Synced: true} }, ready: true, why: "nothing to announce"},
		{name: "another electorate", spoil: func(s *admin.Status) { *s = flat(); s.Election.Problem = "m2 has 5 members" }, why: "election: m2 has 5 members"},
		{name: "unhealthy node", spoil: func(s *admin.Status) { s.VIPs[0].Stage = "withdrawn"; s.Peers = nil }, ready: true, why: "nothing to announce"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := status()
			tt.spoil(&s)
			if ready, why := s.Ready(); ready != tt.ready || why != tt.why {
				t.Errorf("got %t, %q; want %t, %q", ready, why, tt.ready, tt.why)
			}
		})
	}
}

// The result of a drain is derived from the status before and after it.
func TestWriteDrain(t *testing.T) {
	const ends = "until undrain or a restart, since 2026-11-20T12:00:00Z: upgrade\n"
	for name, tt := range map[string]struct {
		change func(before, after *admin.Status)
		want   string
		left   string
	}{
		"withdrawn, nobody holds it": {
			func(*admin.Status, *admin.Status) {},
			"VIP             ADDRESS      LINK   WAS         IS\ncontrol-plane   10.3.0.100   eth0   announced   withdrawn\ndrained " + ends, "",
		},
		"handed over": {
			func(_, after *admin.Status) { after.Election.Leases[0].Holder = "m2" },
			"VIP             ADDRESS      LINK   WAS         IS\ncontrol-plane   10.3.0.100   eth0   announced   handed over to m2\ndrained " + ends, "",
		},
		"another's": {
			func(before, after *admin.Status) {
				before.VIPs[0].Stage, before.VIPs[0].State, after.Election.Leases[0].Holder = speaker.Withdrawn, "withdrawn", "m2"
			},
			"VIP             ADDRESS      LINK   WAS         IS\ncontrol-plane   10.3.0.100   eth0   withdrawn   withdrawn\ndrained " + ends, "",
		},
		"lingering": {
			func(_, after *admin.Status) { after.VIPs[0].Stage = speaker.Lingering },
			"VIP             ADDRESS      LINK   WAS         IS\ncontrol-plane   10.3.0.100   eth0   announced   lingering\n", "control-plane 10.3.0.100",
		},
		"drained already, and not done": {
			func(before, after *admin.Status) {
				before.Draining, after.VIPs[0].State, after.VIPs[0].Error = "upgrade", admin.Blocked, "unbind: no rights"
			},
			"VIP             ADDRESS      LINK   WAS         IS\ncontrol-plane   10.3.0.100   eth0   announced   unbind: no rights\n", "control-plane 10.3.0.100",
		},
		"drained already": {func(before, _ *admin.Status) { before.Draining = "upgrade" }, "drained already, " + ends, ""},
		"until undrain": {
			func(before, after *admin.Status) { before.Draining, after.UntilUndrain = "upgrade", true },
			"drained already, until undrain, since 2026-11-20T12:00:00Z: upgrade\n", "",
		},
		"Services": {
			func(before, after *admin.Status) {
				before.VIPs, after.VIPs = nil, nil
				before.Services, after.Services = &admin.Services{Counts: announce.Counts{Routes: 3}, Held: 2}, &admin.Services{Counts: announce.Counts{Routes: 1}}
			},
			"Services: 2 of 3 routes and 2 of 2 held addresses withdrawn\n", "1 routes and 0 held addresses of Services",
		},
		"nothing to withdraw": {func(before, after *admin.Status) { before.VIPs, after.VIPs = nil, nil }, "drained " + ends, ""},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := flat(), flat()
			after.VIPs[0].Stage, after.Election.Leases[0].Holder = speaker.Withdrawn, ""
			after.Draining, after.DrainingSince = "upgrade", after.Started
			tt.change(&before, &after)
			var out strings.Builder
			must.Do(t, after.WriteDrain(&out, before))
			if diff := cmp.Diff(tt.want, out.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got := strings.Join(after.Left(), ", "); got != tt.left {
				t.Errorf("left is %q, want %q", got, tt.left)
			}
		})
	}
}

func TestWriteText(t *testing.T) {
	s := status()
	s.Draining, s.DrainingSince = "kernel\nupgrade", s.Started
	s.Realtime = "real-time scheduling: operation not permitted\nlock memory: operation not permitted"
	s.Peers[0].BFD = &bfd.Status{State: bfd.Up}
	s.Config.Error = "herald.yaml:3:1: vips: at least one is needed"
	s.Peers = append(s.Peers, bgp.Session{Name: "10.0.2.254", ASN: 64500, State: "established", BFD: &bfd.Status{State: bfd.Down, Reason: "no packet yet"}},
		bgp.Session{Name: "eth1", ASN: 64501, State: "waiting", Reason: "no router\tadvertisement\nreceived"})
	want := `herald v1.2.3 on m1, up 2m0s, configuration /etc/herald/herald.yaml generation 2
NOT IN REAL TIME: real-time scheduling: operation not permitted lock memory: operation not permitted
DRAINING: kernel upgrade (until undrain or a restart, since 2026-01-02T03:04:05Z)
CONFIGURATION NOT IN FORCE, the last one still runs:
herald.yaml:3:1: vips: at least one is needed

VIP             ADDRESS      LINK   STATE       FOR    WHY
control-plane   10.99.0.10   lo     announced   1m0s   apiserver healthy (put back 1×)

CHECK       STATE     FOR    LATENCY   WHY
apiserver   healthy   2m0s   1.5ms     200; warning: expires soon

PEER         ASN     STATE         FOR    BFD    SENT            WHY
10.0.1.254   64500   established   2m0s   up     10.99.0.10/32   -
10.0.2.254   64500   established   -      down   -               BFD: no packet yet
eth1         64501   waiting       -      -      -               no router advertisement received
`
	wantText(t, s, s.Started.Add(2*time.Minute), want)
}

// A path given by mistake may be that of something precious.
func TestNothingButASocketIsTakenOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin.conf")
	must.Do(t, os.WriteFile(path, []byte("precious"), 0o600))
	if _, err := admin.Listen(path, slog.New(slog.DiscardHandler), &daemon{}); err == nil || !strings.Contains(err.Error(), path+" is not a socket") {
		t.Errorf("got error %v", err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "precious" {
		t.Errorf("got %q, %v", got, err)
	}
}
