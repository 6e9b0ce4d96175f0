package flat

import (
	"bytes"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/testenv/netns"
)

// Where /proc/sys is read-only that is said once, and in the status until it is right.
func TestAsksAsVIP(t *testing.T) {
	ns, _ := netns.New(t)
	const setting = "/proc/sys/net/ipv4/conf/lo/arp_announce"
	var log bytes.Buffer
	f := &Flat{Options: Options{Log: slog.New(slog.NewTextHandler(&log, nil))}, places: []place{
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
		f.askAsNode()
		f.askAsNode()
		return err
	})
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=WARN") || !strings.Contains(got, "sysctl -w net/ipv4/conf/lo/arp_announce=2") {
		t.Errorf("the log is:\n%s", got)
	}
	if said := f.AsksAsVIP(); !strings.Contains(said, "arp_announce of lo: read-only file system") {
		t.Errorf("the status has %q", said)
	}
	in(func() error { return os.WriteFile(setting, []byte("2"), 0) })
	in(func() error { f.askAsNode(); return nil })
	if said := f.AsksAsVIP(); said != "" {
		t.Errorf("it is right, and the status has %q", said)
	}
}
