package observe

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"golang.org/x/net/bpf"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/internal/probe"
	"github.com/herald-vip/herald/testenv/bench/record"
	"github.com/herald-vip/herald/testenv/holders"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/tap"
)

// Seen holds the observations of a trial by clients and, on a flat layer 2, by an observer.
type Seen struct {
	// Attempts and Failed count the clients' connections, without Starved.
	Attempts, Failed int
	// Starved counts the attempts that prove nothing, because the prober itself did not
	// run; Late is the longest delay of its schedule.
	Starved int
	Late    time.Duration
	// Outage is the time from the first failed connection to the first good one after the
	// last failed one, the longest if several, 0 if none. Open reports that it had not
	// ended when the trial did.
	Outage time.Duration
	Open   bool
	// Taken is the time from the fault until another node had claimed the VIP on the
	// wire; nil if none had in time.
	Taken *time.Duration
	// After is the outage after the end of an unplanned fault; nil if it was not measured.
	After *time.Duration
	// Holders is how many nodes had the VIP at the same time, Split for how long.
	Holders int
	Split   time.Duration
}

// Values returns the clients' observations for a record.
func (s Seen) Values() []record.Value {
	outage := &s.Outage
	if s.Open {
		outage = nil
	}
	list := []record.Value{{Value: float64(s.Attempts), Unit: "connections"}, {Value: float64(s.Failed), Unit: "failed"}, Milliseconds("outage", outage)}
	if s.Starved > 0 {
		list = append(list, record.Value{Value: float64(s.Starved), Unit: "starved"})
	}
	return append(list, Milliseconds("late", &s.Late))
}

// SeenOnLink returns the observer's values, and the clients' outage after the fault.
func (s Seen) SeenOnLink() []record.Value {
	list := []record.Value{Milliseconds("taken", s.Taken)}
	if s.After != nil {
		list = append(list, Milliseconds("after", s.After))
	}
	return append(list, record.Value{Value: float64(s.Holders), Unit: "holders"}, Milliseconds("split", &s.Split))
}

// Milliseconds returns a duration for a record; nil means that it never ended.
func Milliseconds(name string, d *time.Duration) record.Value {
	if d == nil {
		return record.Never("ms/" + name)
	}
	return record.Value{Value: float64(*d) / float64(time.Millisecond), Unit: "ms/" + name}
}

// TakenOver returns the time from since until other nodes than the holder had claimed
// all these addresses, by an answer or an announcement.
func TakenOver(t *holders.Trace, vips []netip.Addr, holder string, since time.Duration) (time.Duration, bool) {
	first := make(map[netip.Addr]time.Duration)
	for _, s := range t.Observations {
		if _, ok := first[s.VIP]; !ok && s.At >= since && s.Act != holders.Accepts && s.Master != holder && slices.Contains(vips, s.VIP) {
			first[s.VIP] = s.At
		}
	}
	var last time.Duration
	for _, at := range first {
		last = max(last, at-since)
	}
	return last, len(first) == len(vips)
}

// AddHolders records for how long since an instant more than one node claimed the VIP on the wire.
func (s *Seen) AddHolders(trace *holders.Trace, since time.Duration) {
	s.Holders = 1
	until := make(map[netip.Addr]time.Duration) // end of the time counted already; spans are in order of their beginnings
	split := make(map[netip.Addr]time.Duration)
	for _, v := range holders.Judge(trace, holders.DefaultLimits()) {
		if v.From < since || v.Rule != holders.TwoHolders {
			continue
		}
		s.Holders = 2
		split[v.VIP] += max(0, v.To-max(v.From, until[v.VIP]))
		until[v.VIP] = max(until[v.VIP], v.To)
		s.Split = max(s.Split, split[v.VIP])
	}
}

// AddClients adds the clients' observations. healed is when an unplanned fault ended:
// later outages are counted separately. It is zero for a planned change.
func (s *Seen) AddClients(results []*probe.Result, healed time.Time) {
	var after time.Duration
	for _, r := range results {
		s.Late = max(s.Late, r.MaxDelay)
		before := r.Attempts
		if !healed.IsZero() {
			end, _ := slices.BinarySearchFunc(r.Attempts, healed.Sub(r.Began), func(a probe.Attempt, at time.Duration) int { return cmp.Compare(a.Start, at) })
			before = r.Attempts[:end]
			late, _ := Outage(r.Attempts[end:])
			after = max(after, late)
		}
		for _, a := range before {
			switch {
			case a.Outcome.Inconclusive():
				s.Starved++
				continue
			case a.Outcome.Failed():
				s.Failed++
			}
			s.Attempts++
		}
		d, open := Outage(before)
		s.Outage, s.Open = max(s.Outage, d), s.Open || open
	}
	if !healed.IsZero() {
		s.After = &after
	}
}

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
