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
	// maxFile limits the size read from the file of remembered members in bytes, and MaxRemembered their number.
	maxFile       = 16 << 10
	MaxRemembered = 64
)

// ReadRemembered reads the members that were present at the previous run. A missing file yields none, and invalid lines
// are skipped: the configured members are asked anyway.
func ReadRemembered(file string) (map[string]netip.AddrPort, error) {
	if file == "" {
		return nil, nil
	}
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the remembered members: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return nil, fmt.Errorf("read the remembered members: %w", err)
	}
	return parseRemembered(b), nil
}

// parseRemembered parses lines of a name and an address, up to MaxRemembered.
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

// WriteRemembered replaces the file with these members atomically.
func WriteRemembered(file string, members map[string]netip.AddrPort) error {
	if err := disk.Replace(file, formatRemembered(members)); err != nil {
		return fmt.Errorf("write the remembered members: %w", err)
	}
	return nil
}
