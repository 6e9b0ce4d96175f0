package observe

import (
	"net/netip"
	"sync"
	"time"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"golang.org/x/net/bpf"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/tap"
)

// Word is a kind of event on a BGP session that ends or changes the VIP's route.
type Word string

// The words.
const (
	Withdrawal   Word = "withdrawal"   // an UPDATE without the route
	Announcement Word = "announcement" // an UPDATE with the route, its attributes changed
	Notification Word = "notification" // the session ends, with a reason
	Close        Word = "close"        // the TCP connection ends, FIN or RST
)

const bgpPort = 179

// Wire captures the BGP sessions that arrive at a router's interfaces.
type Wire struct {
	tap *tap.Tap

	mu    sync.Mutex
	words []Heard
}

// Heard is a word, its sender and its time of arrival.
type Heard struct {
	At   time.Time
	from netip.Addr
	Word Word
}

// Listen starts the capture in the router's network. The caller closes it.
func Listen(n *lab.Node) (_ *Wire, err error) {
	w := new(Wire)
	const header = 14 // Ethernet's
	filter := []bpf.Instruction{
		bpf.LoadAbsolute{Off: 12, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.ETH_P_IP, SkipTrue: 7},
		bpf.LoadAbsolute{Off: header + 9, Size: 1}, // protocol; packets in a lab have no IP options
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_TCP, SkipTrue: 5},
		bpf.LoadAbsolute{Off: header + 20, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: bgpPort, SkipTrue: 2},
		bpf.LoadAbsolute{Off: header + 22, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: bgpPort, SkipTrue: 1},
		bpf.RetConstant{Val: 1 << 16},
		bpf.RetConstant{Val: 0},
	}
	w.tap, err = tap.Open(n, "", filter, func(f tap.Frame) {
		if !f.Outgoing && len(f.Data) > header {
			w.take(f.Data[header:], f.At)
		}
	})
	return w, err
}

func (w *Wire) take(packet []byte, at time.Time) {
	from, words := read(packet)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, word := range words {
		w.words = append(w.words, Heard{at, from, word})
	}
}

// Mark discards all words captured so far.
func (w *Wire) Mark() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.words = nil
}

// First returns the first word from a sender since the last mark.
func (w *Wire) First(from netip.Addr) (Heard, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.words {
		if h.from == from {
			return h, true
		}
	}
	return Heard{}, false
}

// Close ends the capture.
func (w *Wire) Close() error { return w.tap.Close() }

// read returns the sender of an IPv4 packet and its BGP words; mostly none. It misses
// a message that does not start at the beginning of its segment; no speaker in a lab
// sends such.
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

// messages returns the words of the BGP messages at the beginning of payload.
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
					withdrawn = withdrawn || len(attribute.Value) > 0 // otherwise it is an end-of-RIB
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
