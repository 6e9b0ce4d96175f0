package bench

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

// neighbourOverflows is how often the kernel's tables of neighbours have been
// full. They are shared by all namespaces of a machine (net.ipv4.neigh.default
// .gc_thresh3), and a host that cannot make an entry does not even answer ARP: on a
// machine full of labs, what looks like a silent holder may be that.
func neighbourOverflows() (n uint64, err error) {
	for _, table := range []string{"arp_cache", "ndisc_cache"} {
		text, err := os.ReadFile("/proc/net/stat/" + table)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		m, err := tableFulls(string(text))
		if err != nil {
			return 0, fmt.Errorf("%s: %w", table, err)
		}
		n += m
	}
	return n, nil
}

// tableFulls adds up a column of /proc/net/stat/arp_cache, which has a line for
// each processor.
func tableFulls(text string) (n uint64, err error) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	column := slices.Index(strings.Fields(lines[0]), "table_fulls")
	if column < 0 {
		return 0, nil // an older kernel
	}
	for _, line := range lines[1:] {
		fields := strings.Fields(line)
		if column >= len(fields) {
			return 0, fmt.Errorf("no table_fulls in %q", line)
		}
		m, err := strconv.ParseUint(fields[column], 16, 64)
		if err != nil {
			return 0, err
		}
		n += m
	}
	return n, nil
}
