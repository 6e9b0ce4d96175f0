package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"golang.org/x/net/bpf"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/testenv/lab"
)

// Word is what a speaker says on a BGP session that ends or changes the VIP's route.
type Word string

// The words.
const (
	Withdrawal   Word = "withdrawal"   // an UPDATE without the route
	Announcement Word = "announcement" // an UPDATE with the route, its attributes changed
	Notification Word = "notification" // the session ends, with a reason
	Close        Word = "close"        // the TCP connection ends, FIN or RST
)

const bgpPort = 179

// wire listens to the BGP sessions that come in at a router's interfaces.
type wire struct {
	file *os.File
	done chan struct{}

	mu    sync.Mutex
	words []heard
	err   error
}

// heard is a word, who said it and when it came in.
type heard struct {
	at   time.Time
	from netip.Addr
	word Word
}

// listen begins to listen in the router's network.
func listen(n *lab.Node) (*wire, error) {
	var fd int
	err := n.Do(func() (err error) {
		// Datagram: without the link's header. The kernel hands over each packet
		// with the time at which it took it from the link.
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		if err := tune(fd); err != nil {
			return errors.Join(err, unix.Close(fd))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("listen to the BGP sessions of %s: %w", n.Name(), err)
	}
	w := &wire{file: os.NewFile(uintptr(fd), "packets of "+n.Name()), done: make(chan struct{})}
	go w.run()
	return w, nil
}

// tune filters for BGP over IPv4, asks for time stamps, and only then opens the ears.
func tune(fd int) error {
	program, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: 9, Size: 1}, // protocol; no options follow in a lab
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_TCP, SkipTrue: 5},
		bpf.LoadAbsolute{Off: 20, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: bgpPort, SkipTrue: 2},
		bpf.LoadAbsolute{Off: 22, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: bgpPort, SkipTrue: 1},
		bpf.RetConstant{Val: 1 << 16},
		bpf.RetConstant{Val: 0},
	})
	if err != nil {
		return err
	}
	filter := make([]unix.SockFilter, len(program))
	for i, ins := range program {
		filter[i] = unix.SockFilter{Code: ins.Op, Jt: ins.Jt, Jf: ins.Jf, K: ins.K}
	}
	return errors.Join(
		unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_IP)}),
	)
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

// run takes packets until the socket is closed.
func (w *wire) run() {
	defer close(w.done)
	raw, err := w.file.SyscallConn()
	if err != nil {
		w.fail(err)
		return
	}
	packet, control := make([]byte, 1<<16), make([]byte, 256)
	for {
		var n, controlLen int
		var from unix.Sockaddr
		var got error
		err := raw.Read(func(fd uintptr) bool {
			n, controlLen, _, from, got = unix.Recvmsg(int(fd), packet, control, 0)
			return got != unix.EAGAIN
		})
		if err != nil { // closed
			return
		}
		if got == unix.EINTR {
			continue
		}
		if got != nil {
			w.fail(got)
			return
		}
		if ll, ok := from.(*unix.SockaddrLinklayer); ok && ll.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		w.take(packet[:n], stamp(control[:controlLen]))
	}
}

// stamp is the kernel's time of a packet, or now if it has none.
func stamp(control []byte) time.Time {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return time.Now()
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= 16 {
			return time.Unix(int64(binary.NativeEndian.Uint64(m.Data)), int64(binary.NativeEndian.Uint64(m.Data[8:])))
		}
	}
	return time.Now()
}

func (w *wire) take(packet []byte, at time.Time) {
	from, words := read(packet)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, word := range words {
		w.words = append(w.words, heard{at, from, word})
	}
}

func (w *wire) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

// mark forgets all that was heard.
func (w *wire) mark() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.words = nil
}

// first is the first that from said since the last mark.
func (w *wire) first(from netip.Addr) (heard, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.words {
		if h.from == from {
			return h, true
		}
	}
	return heard{}, false
}

func (w *wire) close() error {
	err := w.file.Close()
	<-w.done
	return errors.Join(err, w.err)
}

// read returns who sent an IPv4 packet and what it says of the BGP session that
// it belongs to: nothing, for most. A message that does not begin with its
// segment is missed; no speaker sends any in a lab.
func read(packet []byte) (from netip.Addr, words []Word) {
	h, err := ipv4.ParseHeader(packet)
	if err != nil || h.Protocol != unix.IPPROTO_TCP || h.Len > len(packet) {
		return netip.Addr{}, nil
	}
	from, _ = netip.AddrFromSlice(h.Src)
	from = from.Unmap()
	segment := packet[h.Len:min(max(h.TotalLen, h.Len), len(packet))]
	const headerLen = 20
	if len(segment) < headerLen {
		return from, nil
	}
	flags, offset := segment[13], int(segment[12]>>4)*4
	if offset < headerLen || offset > len(segment) {
		return from, nil
	}
	words = messages(segment[offset:])
	const fin, rst = 1, 4
	if flags&(fin|rst) != 0 {
		words = append(words, Close)
	}
	return from, words
}

// messages returns what the BGP messages at the beginning of payload say.
func messages(payload []byte) (words []Word) {
	for len(payload) >= bgp.BGP_HEADER_LENGTH {
		length := int(payload[16])<<8 | int(payload[17])
		if length < bgp.BGP_HEADER_LENGTH || length > len(payload) {
			break
		}
		m, err := bgp.ParseBGPMessage(payload[:length])
		if err != nil {
			break
		}
		switch body := m.Body.(type) {
		case *bgp.BGPUpdate:
			withdrawn, announced := len(body.WithdrawnRoutes) > 0, len(body.NLRI) > 0
			for _, attribute := range body.PathAttributes {
				switch attribute := attribute.(type) {
				case *bgp.PathAttributeMpUnreachNLRI:
					withdrawn = withdrawn || len(attribute.Value) > 0 // else it is an end-of-RIB
				case *bgp.PathAttributeMpReachNLRI:
					announced = true
				}
			}
			if withdrawn {
				words = append(words, Withdrawal)
			} else if announced {
				words = append(words, Announcement)
			}
		case *bgp.BGPNotification:
			words = append(words, Notification)
		}
		payload = payload[length:]
	}
	return words
}
