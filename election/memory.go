package election

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
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

const (
	// maxMemory is how much of the file of remembered members is read, in bytes, and
	// maxRemembered how many of them are asked.
	maxMemory     = 16 << 10
	maxRemembered = 64
)

// recall reads which members were there when this node ran last. A file that is not
// there is nothing to speak of, and a line that is not understood is left out: those that
// are configured are asked anyway.
func recall(file string) (map[string]netip.AddrPort, error) {
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
	b, err := io.ReadAll(io.LimitReader(f, maxMemory))
	if err != nil {
		return nil, fmt.Errorf("read which members were there: %w", err)
	}
	return parseMemory(b), nil
}

// parseMemory reads lines of a name and an address, of as many members as may be.
func parseMemory(b []byte) map[string]netip.AddrPort {
	members := make(map[string]netip.AddrPort)
	for lines := bufio.NewScanner(bytes.NewReader(b)); len(members) < maxRemembered && lines.Scan(); {
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

// formatMemory is what parseMemory reads.
func formatMemory(members map[string]netip.AddrPort) []byte {
	var b bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if !strings.ContainsFunc(name, unicode.IsSpace) {
			fmt.Fprintln(&b, name, members[name])
		}
	}
	return b.Bytes()
}

// memorize replaces the file by one with these members, all or nothing.
func memorize(file string, members map[string]netip.AddrPort) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write which members are there: %w", err)
		}
	}()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-*")
	if err != nil {
		return err
	}
	_, err = f.Write(formatMemory(members))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// remember writes down who offers something, whenever that changes: who finds none of the
// members in its configuration when it is started again finds some of these.
func (n *node) remember() {
	n.mu.Lock()
	file, votes := n.config.Remember, n.config.votes()
	n.mu.Unlock()
	if file == "" || votes {
		return
	}
	members := make(map[string]netip.AddrPort)
	for _, o := range n.offering.list() {
		if !o.Self && !o.Left && len(members) < maxRemembered {
			members[o.Member] = o.Address
		}
	}
	if len(members) == 0 || maps.Equal(members, n.written) {
		return
	}
	if err := memorize(file, members); err != nil {
		n.journal.warn("the next start will know only the configured members: " + err.Error())
		return
	}
	n.written = members
}
