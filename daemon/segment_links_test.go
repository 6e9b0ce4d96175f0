package daemon

import (
	"bytes"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/arp"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/testenv/netns"
)

// A node whose onConflict becomes yield has a verdict on the address at once: that nobody
// else used it was known before, and is not found out a second time.
func TestYieldFromNowOn(t *testing.T) {
	told := make(map[string]health.State)
	g := &segment{
		log: slog.New(slog.DiscardHandler), verdicts: make(map[string]health.Verdict), acquainted: true,
		told: func(v health.Verdict) { told[v.Check] = v.State },
	}
	g.announcer = arp.New(g.log, arp.Options{Observe: g.found})
	vip := config.VIP{Name: "flat", Interface: "nolink0", Announce: config.AnnounceARP,
		Addresses: []netip.Addr{netip.MustParseAddr("10.4.0.10")}}
	check := addressCheck(flatVIP{addr: vip.Addresses[0]})
	for _, policy := range []config.OnConflict{config.Defend, config.Yield} {
		vip.OnConflict = policy
		g.watch(&config.Config{Election: &config.Election{}, VIPs: []config.VIP{vip}})
		if state, ok := told[check]; ok != (policy == config.Yield) || ok && state != health.Healthy {
			t.Errorf("onConflict %s: a verdict was told: %v, %v", policy, ok, state)
		}
	}
}

// Where /proc/sys is read-only that is said once, and in the status until it is right.
func TestAsksAsVIP(t *testing.T) {
	ns, _ := netns.New(t)
	const setting = "/proc/sys/net/ipv4/conf/lo/arp_announce"
	var log bytes.Buffer
	g := &segment{log: slog.New(slog.NewTextHandler(&log, nil)), vips: []flatVIP{
		{addr: netip.MustParseAddr("10.4.0.10"), link: "lo"}, {addr: netip.MustParseAddr("10.4.0.11"), link: "lo"},
		{addr: netip.MustParseAddr("10.5.0.10"), link: "nolink0"}, {addr: netip.MustParseAddr("fd00:4::10"), link: "lo"},
	}}
	in := func(do func() error) {
		t.Helper()
		if err := netns.In(ns, do); err != nil {
			t.Fatal(err)
		}
	}
	in(func() error {
		const settings = "/proc/sys"
		err := errors.Join(
			unix.Unshare(unix.CLONE_NEWNS),
			unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount(settings, settings, "", unix.MS_BIND, ""),
			unix.Mount("", settings, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""),
		)
		g.askAsNode()
		g.askAsNode()
		return err
	})
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=WARN") || !strings.Contains(got, "sysctl -w net/ipv4/conf/lo/arp_announce=2") {
		t.Errorf("the log is:\n%s", got)
	}
	if said := g.asksAsVIP(); !strings.Contains(said, "arp_announce of lo: read-only file system") {
		t.Errorf("the status has %q", said)
	}
	in(func() error { return os.WriteFile(setting, []byte("2"), 0) })
	in(func() error { g.askAsNode(); return nil })
	if said := g.asksAsVIP(); said != "" {
		t.Errorf("it is right, and the status has %q", said)
	}
}
