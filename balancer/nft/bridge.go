package nft

import (
	"net/netip"
	"time"
)

// Bridge sends new TCP connections to a VIP, at any port, on to healthy masters. They go to a
// master's own address, never to a VIP, so that no second bridge can take them: there is one hop.
// What goes on by it is masqueraded. Its methods may be called from any goroutine.
type Bridge struct{}

// Prepare says to which addresses new connections would be sent on, by VIP: the own ones, of
// the same family, of masters that are healthy now. It forwards nothing that is not open;
// what is open is spread over the new ones at once. A VIP that is not named is closed. After an
// error Prepare is to be called again.
func (b *Bridge) Prepare(vips map[netip.Addr][]netip.Addr) error { return nil }

// Open sends new connections to vips on from now on, for at most so long: the kernel ends
// that by itself. Opening again sets the time anew. It never blocks: Plane.Run opens, and logs why it
// could not. A VIP for which no masters are prepared stays closed.
func (b *Bridge) Open(limit time.Duration, vips ...netip.Addr) {}

// Close ends sending on new connections to vips. Those that were sent on go on. It is to be
// called before a VIP is bound or announced here again.
func (b *Bridge) Close(vips ...netip.Addr) error { return nil }

// Received is how many new connections to vip were sent on since it was opened last from closed.
func (b *Bridge) Received(vip netip.Addr) (uint64, error) { return 0, nil }
