package fence

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// In a pod, and under ProtectKernelTunables, settings are for reading only.
func TestAnnounceOwnWhereItCannotBeSet(t *testing.T) {
	h := newHost(t)
	h.In(func() {
		h.Must(readOnlySettings())
		err := AnnounceOwn("lo")
		if !errors.Is(err, unix.EROFS) || !strings.Contains(err.Error(), "sysctl -w net/ipv4/conf/lo/arp_announce=2") {
			t.Errorf("error %v, want that it is read-only, and what to do", err)
		}
		if err := AnnounceOwn("nosuch0"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("no such link: %v", err)
		}
	})
	for _, of := range []string{"lo", "all"} {
		h.sysctl("ipv4/conf/"+of+"/arp_announce", "2")
		h.In(func() {
			h.Must(readOnlySettings())
			if err := AnnounceOwn("lo"); err != nil {
				t.Errorf("set for %s already: %v", of, err)
			}
		})
		h.sysctl("ipv4/conf/"+of+"/arp_announce", "0")
	}
	h.In(func() { h.Must(AnnounceOwn("lo")) })
	h.In(func() {
		if got, err := os.ReadFile("/proc/sys/net/ipv4/conf/lo/arp_announce"); err != nil || string(got) != "2\n" {
			t.Errorf("set to %q, %v", got, err)
		}
	})
}

// readOnlySettings makes /proc/sys read-only for the thread it is called on.
func readOnlySettings() error {
	const settings = "/proc/sys"
	return errors.Join(
		unix.Unshare(unix.CLONE_NEWNS),
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount(settings, settings, "", unix.MS_BIND, ""),
		unix.Mount("", settings, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""),
	)
}
