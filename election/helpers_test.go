package election

import (
	"bytes"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
)

// book is a log that tests can read.
type book struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *book) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(line)
}

// count returns the number of lines that contain what.
func (b *book) count(what string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for line := range strings.Lines(b.b.String()) {
		if strings.Contains(line, what) {
			n++
		}
	}
	return n
}

func (b *book) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func (b *book) logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

func ap(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

func trio() map[string]netip.AddrPort {
	return map[string]netip.AddrPort{"m1": ap("10.0.0.1:7946"), "m2": ap("10.0.0.2:7946"), "m3": ap("10.0.0.3:7946")}
}

// allAlive returns the members that are alive to this one.
func (m *member) allAlive() []string {
	if n := m.running(); n != nil {
		return n.alive()
	}
	return nil
}
