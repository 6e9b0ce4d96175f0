package link_test

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/netutil/link"

	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/nettest"
)

// Set works where /proc/sys is read-only, as in a pod.
func TestSetting(t *testing.T) {
	h := nettest.NewHost(t)
	h.AddVeth("eth0", "eth1")
	const conf = "/proc/sys/net/ipv4/conf/"
	expect := func(setting, want string) {
		t.Helper()
		if got, err := os.ReadFile(conf + setting); err != nil || string(got) != want+"\n" {
			t.Errorf("%s is %q, %v; want %s", setting, got, err, want)
		}
	}
	h.In(func() {
		const settings = "/proc/sys"
		must.Do(t, errors.Join(unix.Unshare(unix.CLONE_NEWNS),
			unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount(settings, settings, "", unix.MS_BIND, ""),
			unix.Mount("", settings, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")))
		if err := os.WriteFile(conf+"eth0/route_localnet", []byte("1"), 0); !errors.Is(err, unix.EROFS) {
			t.Fatalf("/proc/sys can be written: %v", err)
		}
		for _, value := range []uint32{1, 0} {
			text := string('0' + rune(value))
			must.Do(t, errors.Join(link.RouteLocalnet.Set("eth0", value), link.Forwarding.Set("eth1", value)))
			expect("eth0/route_localnet", text)
			expect("eth1/forwarding", text)
			expect("eth1/route_localnet", "0")
		}
		if err := link.RouteLocalnet.Set("eth9", 1); !errors.Is(err, unix.ENODEV) {
			t.Errorf("Set on a missing link: error %v, want ENODEV", err)
		}
	})
}
