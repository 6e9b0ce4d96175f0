package fence

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// AnnounceOwn makes the kernel send ARP requests on link from an address of that link's
// own subnet (arp_announce=2), rather than from a virtual one that it happens to reply
// from, which would announce that one. It writes nothing where link or all has that
// value already. The error is an [fs.ErrNotExist] if there is no such link, and
// otherwise says what to set.
func AnnounceOwn(link string) error {
	if link == "" || link == "." || link == ".." || strings.ContainsRune(link, '/') {
		return fmt.Errorf("set arp_announce: %q is not the name of a link", link)
	}
	const conf, own = "net/ipv4/conf", "2"
	setting := func(link string) string { return filepath.Join(conf, link, "arp_announce") }
	for _, of := range []string{link, "all"} { // the greater one counts
		value, err := os.ReadFile(filepath.Join("/proc/sys", setting(of)))
		if err == nil && strings.TrimSpace(string(value)) == own {
			return nil
		}
	}
	f, err := os.OpenFile(filepath.Join("/proc/sys", setting(link)), os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(own)
		if closed := f.Close(); err == nil {
			err = closed
		}
	}
	var failed *fs.PathError
	if errors.As(err, &failed) {
		err = failed.Err
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("set arp_announce: there is no link %q (or no IPv4 on it): %w", link, err)
	case err != nil:
		return fmt.Errorf("set arp_announce of %s: %w: on the host, sysctl -w %s=%s", link, err, setting(link), own)
	}
	return nil
}
