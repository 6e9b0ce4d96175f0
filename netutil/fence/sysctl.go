package fence

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// AnnounceOwn has the kernel ask in ARP on link with an address of that link's own
// subnet as the sender, rather than with a virtual one that it happens to reply from
// (arp_announce=2): asking with a virtual address would tell the neighbours that it
// is here.
func AnnounceOwn(link string) error {
	if link == "" || link == "." || link == ".." || strings.ContainsRune(link, '/') {
		return fmt.Errorf("set arp_announce: %q is not the name of a link", link)
	}
	path := filepath.Join("/proc/sys/net/ipv4/conf", link, "arp_announce")
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString("2")
		if closed := f.Close(); err == nil {
			err = closed
		}
	}
	switch {
	case os.IsNotExist(err):
		return fmt.Errorf("set arp_announce: there is no link %q (or no IPv4 on it): %w", link, err)
	case err != nil:
		return fmt.Errorf("set arp_announce of %s, which needs a writable /proc/sys: %w", link, err)
	}
	return nil
}
