//go:build e2e

package flat

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
	"github.com/mdlayher/ndp"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/lab"
)

// foreign is the MAC address of a machine that is no master.
var foreign = net.HardwareAddr{0x02, 0xff, 0, 0, 0, 1}

// TestARPFlood floods the segment with forged ARP and the masters with forged gossip,
// 10,000 frames per second each: the VIP does not move, and memory does not grow.
func TestARPFlood(t *testing.T) {
	const perSecond, seconds = 10_000, 5
	f, holder := site.StartFlat(t)
	rng := rand.New(rand.NewPCG(1, 2))
	var gossip [][]byte
	for _, m := range site.FlatMasters() {
		for _, from := range []string{"10.4.0.66", "10.4.0.1", "10.4.0.2", "10.4.0.3"} { // an unused address, and members'
			for range 8 {
				dst := netip.AddrFrom4([4]byte{10, 4, 0, m[1] - '0'})
				gossip = append(gossip, datagram(t, f.Link(m, "lan").MAC(m), netip.MustParseAddr(from), dst, rng))
			}
		}
	}
	var forged [][]byte
	for i := range byte(64) {
		mac := net.HardwareAddr{0x02, 0xff, 0, 0, 1, i}
		for _, vip := range f.Vips() {
			forged = append(forged, claims(t, mac, vip)...)
		}
	}
	for _, flood := range []struct {
		name   string
		frames [][]byte
	}{{"gossip", gossip}, {"ARP", forged}} {
		t.Run(flood.name, func(t *testing.T) {
			from := f.Mark(t)
			before := make(map[string]int)
			for _, m := range site.FlatMasters() {
				before[m] = site.Memory(t, f.Node(m+"-speaker").Daemon("herald").Pid(), "VmRSS")
			}
			shout(t, f.Node("o1"), flood.frames, perSecond, perSecond*seconds)
			f.Asked(t, 50)
			f.Stays(t, holder, from)
			for _, m := range site.FlatMasters() {
				const most = 24 << 20
				if now := site.Memory(t, f.Node(m+"-speaker").Daemon("herald").Pid(), "VmRSS"); now > before[m]+most {
					t.Errorf("the speaker of %s grew from %d to %d MiB", m, before[m]>>20, now>>20)
				}
				const lines = 100
				if n := f.Logged(t, m, "level=(WARN|ERROR)"); n > lines {
					t.Errorf("%s logged %d warnings and errors, want %d at most", m, n, lines)
				}
			}
		})
	}
	// The client believes the last announcement, finally the holder's.
	load := f.Connect(t)
	site.Eventually(t, site.Soon, func() error {
		now := time.Now()
		load.GoesOn(t, 100)
		failed := load.Failed(now)
		return site.ErrorIf(len(failed) > 0, "%d connections fail", len(failed))
	})
}

// TestARPStranger makes a machine that is no master use the VIP. The holder defends
// it, and reports the machine; with `onConflict: yield` it gives the VIP up.
func TestARPStranger(t *testing.T) {
	t.Parallel()
	f, holder := site.StartFlat(t)
	from := f.Mark(t)
	var use [][]byte
	for _, vip := range f.Vips() {
		use = append(use, claims(t, foreign, vip)...)
	}
	shout(t, f.Node("o1"), use, 100, 200)
	f.Speaker(holder).ShowsVIPs(t, func(v admin.VIP) error {
		return site.ErrorIf(!strings.Contains(v.Conflict, foreign.String()), "status reports a conflict over %s: %q", v.Address, v.Conflict)
	})
	if n := f.Logged(t, holder, "level=ERROR.*"+foreign.String()); n != len(f.Vips()) {
		t.Errorf("%s named the stranger %d times, want once for each address", holder, n)
	}
	f.Asked(t, 50)
	f.Stays(t, holder, from)
	for _, m := range site.FlatMasters() {
		for _, other := range site.FlatMasters() {
			if n := f.Logged(t, m, "level=ERROR.*"+f.Link(other, "lan").MAC(other).String()); n > 0 {
				t.Errorf("%s reported %s as a stranger", m, other)
			}
		}
	}

	for _, m := range site.FlatMasters() {
		f.Rewrite(t, m, "herald.yaml", func(s string) string {
			return strings.Replace(s, "announce: arp", "announce: arp\n  onConflict: yield", 1)
		})
	}
	site.Eventually(t, site.Soon, func() error {
		shout(t, f.Node("o1"), use, 100, len(use))
		for _, vip := range f.Vips() {
			if m, _ := f.Seen.Holder(vip); m != "" {
				return fmt.Errorf("%s still answers for %s", m, vip)
			}
		}
		return nil
	})
}

// TestARPSomebodyElseAtWork repeatedly removes the holder's address and flushes its
// nftables: both are restored, and the VIP does not move.
func TestARPSomebodyElseAtWork(t *testing.T) {
	t.Parallel()
	f, holder := site.StartFlat(t)
	for _, vip := range f.Vips() {
		for times := 1; times <= 3; times++ {
			site.MustRun(t, f.Node(holder), "ip", "addr", "del", fmt.Sprintf("%v/%d", vip, vip.BitLen()), "dev", "eth1")
			f.Speaker(holder).ShowsVIPs(t, func(v admin.VIP) error {
				return site.ErrorIf(v.Address == vip && v.Restored < times, "%v was put back %d times, want %d", vip, v.Restored, times)
			})
			f.Held(t, holder)
		}
	}
	load, began := f.Connect(t), time.Now()
	for _, m := range []string{holder, holder, holder, f.Others(holder)[0]} {
		from, before := f.Mark(t), f.Logged(t, m, "level=WARN.*put back Herald's nftables")
		site.MustRun(t, f.Node(m), "nft", "flush", "ruleset")
		site.Eventually(t, site.Soon, func() error {
			out, err := site.Run(t, f.Node(m), "nft", "list", "tables")
			return site.Check(err, !strings.Contains(out, "table arp herald") || !strings.Contains(out, "table inet herald"), "the tables are %s", out)
		})
		f.Held(t, holder)
		f.Asked(t, 100) // until after the next check of the filter
		f.Stays(t, holder, from)
		if n := f.Logged(t, m, "level=WARN.*put back Herald's nftables") - before; n != 1 {
			t.Errorf("%s logged %d restorations of its tables, want 1", m, n)
		}
	}
	load.Few(t, began, 40) // four flushes: new tables are closed until both of their locks are confirmed in time
}

// shout sends frames from a node, one after the other, at a rate.
func shout(t *testing.T, n *lab.Node, frames [][]byte, perSecond, total int) {
	t.Helper()
	site.Must(t, n.Do(func() error {
		dev, err := net.InterfaceByName("eth1")
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: dev.Index}); err != nil {
			return err
		}
		const batches = 100 // per second
		tick := time.NewTicker(time.Second / batches)
		defer tick.Stop()
		for sent := 0; sent < total; {
			<-tick.C
			for range max(1, perSecond/batches) {
				if _, err := unix.Write(fd, frames[sent%len(frames)]); err != nil && !errors.Is(err, unix.ENOBUFS) {
					return err
				}
				sent++
			}
		}
		return nil
	}))
}

// claims returns the frames that announce an address: both forms of gratuitous ARP, or
// an unsolicited neighbour advertisement.
func claims(t *testing.T, mac net.HardwareAddr, vip netip.Addr) (frames [][]byte) {
	t.Helper()
	frame := func(dst net.HardwareAddr, kind ethernet.EtherType, payload []byte) {
		f := site.Get[[]byte](t)((&ethernet.Frame{Source: mac, Destination: dst, EtherType: kind, Payload: payload}).MarshalBinary())
		frames = append(frames, f)
	}
	if vip.Is4() {
		for _, op := range []arp.Operation{arp.OperationRequest, arp.OperationReply} {
			p := site.Get[*arp.Packet](t)(arp.NewPacket(op, mac, vip, mac, vip))
			body := site.Get[[]byte](t)(p.MarshalBinary())
			frame(ethernet.Broadcast, ethernet.EtherTypeARP, body)
		}
		return frames
	}
	all := netip.MustParseAddr("ff02::1")
	body, err := ndp.MarshalMessageChecksum(&ndp.NeighborAdvertisement{
		Override: true, TargetAddress: vip,
		Options: []ndp.Option{&ndp.LinkLayerAddress{Direction: ndp.Target, Addr: mac}},
	}, vip, all)
	site.Must(t, err)
	header := make([]byte, 40)
	header[0], header[6], header[7] = 0x60, unix.IPPROTO_ICMPV6, 255
	binary.BigEndian.PutUint16(header[4:], uint16(len(body)))
	copy(header[8:], vip.AsSlice())
	copy(header[24:], all.AsSlice())
	frame(net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}, ethernet.EtherTypeIPv6, append(header, body...))
	return frames
}

// datagram returns a UDP datagram with random payload to the gossip port, without a checksum.
func datagram(t *testing.T, mac net.HardwareAddr, src, dst netip.Addr, rng *rand.Rand) []byte {
	t.Helper()
	const ip, udp = 20, 8
	p := make([]byte, ip+udp+50+rng.IntN(1000))
	p[0], p[8], p[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(p[2:], uint16(len(p)))
	copy(p[12:], src.AsSlice())
	copy(p[16:], dst.AsSlice())
	var sum uint32
	for i := 0; i < ip; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(p[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(p[10:], ^uint16(sum+sum>>16))
	binary.BigEndian.PutUint16(p[ip:], 7946)
	binary.BigEndian.PutUint16(p[ip+2:], 7946)
	binary.BigEndian.PutUint16(p[ip+4:], uint16(len(p)-ip))
	for i := ip + udp; i < len(p); i++ {
		p[i] = byte(rng.Uint32())
	}
	frame := site.Get[[]byte](t)((&ethernet.Frame{Source: foreign, Destination: mac, EtherType: ethernet.EtherTypeIPv4, Payload: p}).MarshalBinary())
	return frame
}
