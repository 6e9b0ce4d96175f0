package members

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"unicode"

	"github.com/herald-vip/herald/internal/disk"
)

const (
	// maxFile is how much of the file of remembered members is read, in bytes, and
	// MaxRemembered how many of them are asked.
	maxFile       = 16 << 10
	MaxRemembered = 64
)

// ReadRemembered reads which members were there when this node ran last. A file that is not
// there is nothing to speak of, and a line that is not understood is left out: those that
// are configured are asked anyway.
func ReadRemembered(file string) (map[string]netip.AddrPort, error) {
	if file == "" {
		return nil, nil
	}
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read which members were there: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return nil, fmt.Errorf("read which members were there: %w", err)
	}
	return parseRemembered(b), nil
}

// parseRemembered reads lines of a name and an address, of as many members as may be.
func parseRemembered(b []byte) map[string]netip.AddrPort {
	members := make(map[string]netip.AddrPort)
	for lines := bufio.NewScanner(bytes.NewReader(b)); len(members) < MaxRemembered && lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) != 2 || len(fields[0]) > 255 {
			continue
		}
		at, err := netip.ParseAddrPort(fields[1])
		addr := at.Addr()
		if err != nil || at.Port() == 0 || addr.Zone() != "" || addr.Is4In6() || addr.IsUnspecified() || addr.IsMulticast() {
			continue
		}
		members[fields[0]] = at
	}
	return members
}

func formatRemembered(members map[string]netip.AddrPort) []byte {
	var b bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if !strings.ContainsFunc(name, unicode.IsSpace) {
			fmt.Fprintln(&b, name, members[name])
		}
	}
	return b.Bytes()
}

// WriteRemembered replaces the file by one with these members, all or nothing.
func WriteRemembered(file string, members map[string]netip.AddrPort) error {
	if err := disk.Replace(file, formatRemembered(members)); err != nil {
		return fmt.Errorf("write which members are there: %w", err)
	}
	return nil
}
