package election

import (
	"context"
	"crypto/rand"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/election/transport"
	"github.com/herald-vip/herald/testenv/nettest"
	"github.com/herald-vip/herald/testenv/wait"
)

// flood sends forged packets between two addresses, ten per millisecond, until ctx ends.
func flood(ctx context.Context, conn *net.UDPConn) {
	b := make([]byte, 1200)
	_, _ = rand.Read(b)
	b[0] = 1 // an encrypted message without a valid key
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			for range 10 {
				_, _ = conn.Write(b) // the receiver may drop packets
			}
		}
	}
}

// unhurried sets leases so long that a busy machine with all members and the flood does not end them.
func unhurried(c *Config) { c.Lease = 3 * time.Second }

// renewed waits until the member's lease is renewed.
func (m *member) renewed(name string) {
	m.t.Helper()
	granted := m.granted(name)
	wait.Until(m.t, "the lease is renewed", func() bool { return m.granted(name).Until.After(granted.Until) })
}

// heap returns the used memory after garbage collection.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestFlood sends a flood from an unknown address, and one from the address of an absent member. Neither takes the
// lease from its holder or increases its memory.
func TestFlood(t *testing.T) {
	at := nettest.Loopback(4)
	c := newCluster(t, transport.Listen, at[:3], unhurried)
	away := c.members[2]
	c.members = c.members[:2]
	c.start("vip")
	holder := c.holder("vip")
	c.met()
	for _, m := range c.members {
		m.told()
	}
	before := heap()

	ctx, stop := context.WithCancel(t.Context())
	var flooders sync.WaitGroup
	for _, from := range []net.Addr{net.UDPAddrFromAddrPort(at[3]), net.UDPAddrFromAddrPort(away.home)} {
		conn, err := net.DialUDP("udp", from.(*net.UDPAddr), net.UDPAddrFromAddrPort(holder.home))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		flooders.Go(func() { flood(ctx, conn) })
	}
	wait.Until(t, "the flood has arrived", func() bool {
		d := holder.Status().Dropped
		return d.Unknown > 20_000 && d.Unreadable > 10_000
	})
	holder.renewed("vip")
	stop()
	flooders.Wait()

	for _, m := range c.members {
		if told := m.told(); len(told) > 0 {
			t.Errorf("the handler of %s received %v", m.name, told)
		}
	}
	if after := heap(); after > before+8<<20 {
		t.Errorf("the heap grew from %d to %d bytes", before, after)
	}
	if a, b := holder.log.Count("source="+at[3].Addr().String()), holder.log.Count("cannot be decrypted"); a != 1 || b != 1 {
		t.Errorf("logged the unknown source %d times and the wrong key %d times", a, b)
	}
}

// TestPausedHolderLearnsOfLossFirst pauses a member for longer than its lease. It learns of the loss before it handles
// waiting messages.
func TestPausedHolderLearnsOfLossFirst(t *testing.T) {
	c := newCluster(t, transport.Listen, nettest.Loopback(3), nil)
	c.start("vip")
	first := c.holder("vip")
	c.met()
	first.told()
	var mu sync.Mutex
	var events []lease.Event
	first.node.mu.Lock()
	first.react(func(e lease.Event) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, e)
	})
	second := c.holder("vip", c.others(first)...)
	mu.Lock()
	events = nil
	mu.Unlock()
	first.node.mu.Unlock()
	wait.Until(t, "it learns", func() bool { return len(first.told()) > 0 })
	mu.Lock()
	defer mu.Unlock()
	if _, ok := events[0].(lease.Lost); !ok {
		t.Errorf("its first state is %+v", events[0])
	}
	c.holder("vip", second)
}

// TestFloodOfConnections opens connections from unknown addresses. Their rate is limited, and members with the key
// still get in.
func TestFloodOfConnections(t *testing.T) {
	t.Parallel()
	at := nettest.Loopback(5)
	c := newCluster(t, transport.Listen, at[:3], unhurried)
	c.start("vip")
	holder := c.holder("vip")
	c.met()
	holder.told()

	ctx, stop := context.WithCancel(t.Context())
	var flooders sync.WaitGroup
	junk := make([]byte, 64<<10)
	_, _ = rand.Read(junk)
	copy(junk, []byte{10, 0, 0, 255, 255}) // an endless encrypted message without a valid key
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: at[4].Addr().AsSlice()}, Timeout: time.Second}
	for range 4 {
		flooders.Go(func() {
			for ctx.Err() == nil {
				conn, err := dialer.DialContext(ctx, "tcp", holder.home.String())
				if err != nil {
					continue
				}
				_, _ = conn.Write(junk)
				_ = conn.(*net.TCPConn).SetLinger(0)
				_ = conn.Close()
			}
		})
	}
	wait.Until(t, "the flood has arrived", func() bool { return holder.Status().Dropped.Unknown > 200 })
	w := c.observer("w1", at[3])
	w.apply(nil)
	c.met(w, holder)
	holder.renewed("vip")
	stop()
	flooders.Wait()
	if told := holder.told(); len(told) > 0 || !holder.holds("vip") {
		t.Errorf("the holder received %v", told)
	}
}
