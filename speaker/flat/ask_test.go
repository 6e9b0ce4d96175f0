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

	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/netns"
)

// arp_announce is set even where /proc/sys is read-only, as in a pod. A missing capability is logged once.
func TestAsksAsNode(t *testing.T) {
	ns, _ := netns.New(t)
	var log bytes.Buffer
	f := &Flat{Options: Options{Log: slog.New(slog.NewTextHandler(&log, nil))}, places: []place{
		{addr: netip.MustParseAddr("10.4.0.10"), link: "lo"}, {addr: netip.MustParseAddr("10.4.0.11"), link: "lo"},
		{addr: netip.MustParseAddr("10.5.0.10"), link: "nolink0"}, {addr: netip.MustParseAddr("fd00:4::10"), link: "lo"},
	}}
	must.Do(t, netns.In(ns, func() error {
		const settings = "/proc/sys"
		err := errors.Join(
			unix.Unshare(unix.CLONE_NEWNS),
			unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount(settings, settings, "", unix.MS_BIND, ""),
			unix.Mount("", settings, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""),
		)
		had, all := capabilities(t), capabilities(t)
		had[0].Effective &^= 1 << unix.CAP_NET_ADMIN
		setCapabilities(t, had)
		f.askAsNode()
		f.askAsNode()
		setCapabilities(t, all)
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "operation not permitted") {
			t.Errorf("without the capability the log is:\n%s", got)
		}
		f.askAsNode()
		if value, err := os.ReadFile(settings + "/net/ipv4/conf/lo/arp_announce"); err != nil || string(value) != "2\n" || f.asksAsVIP {
			t.Errorf("arp_announce is %q, %v; asksAsVIP is %t", value, err, f.asksAsVIP)
		}
		return err
	}))
}

// capabilities returns the capabilities of the thread.
func capabilities(t *testing.T) (data [2]unix.CapUserData) {
	t.Helper()
	must.Do(t, unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &data[0]))
	return data
}

func setCapabilities(t *testing.T, data [2]unix.CapUserData) {
	t.Helper()
	must.Do(t, unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &data[0]))
}
