package bgp

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"unicode"

	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// reasons remembers why sessions ended as far as GoBGP puts it only in its log
// and not in its events: what a peer said when it closed one (RFC 9003), what
// was wrong with its message, and that it turned out to have another ASN. So this is a log handler. Herald logs
// sessions itself; the rest of GoBGP's log is passed on at debug level.
type reasons struct {
	mu   sync.Mutex
	said map[netip.Addr]string
}

func newReasons() *reasons { return &reasons{said: make(map[netip.Addr]string)} }

func (r *reasons) put(peer netip.Addr, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said[peer] = reason
}

// take returns what was last learnt about the peer at addr, and forgets it.
func (r *reasons) take(addr netip.Addr) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	said := r.said[addr]
	delete(r.said, addr)
	return said
}

func (r *reasons) handler(next slog.Handler) slog.Handler {
	return reasonHandler{reasons: r, next: next}
}

type reasonHandler struct {
	*reasons
	next slog.Handler
	peer netip.Addr // of the logger, from its attributes
}

func (h reasonHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || h.next.Enabled(ctx, slog.LevelDebug)
}

func (h reasonHandler) Handle(ctx context.Context, r slog.Record) error {
	if h.peer.IsValid() {
		h.learn(r)
	}
	if !h.next.Enabled(ctx, slog.LevelDebug) {
		return nil
	}
	quiet := slog.NewRecord(r.Time, slog.LevelDebug, "gobgp: "+r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		quiet.AddAttrs(a)
		return true
	})
	return h.next.Handle(ctx, quiet)
}

func (h reasonHandler) learn(r slog.Record) {
	malformed := strings.HasPrefix(r.Message, "Session will be reset due to malformed BGP")
	if r.Message != "received notification" && r.Message != "sent notification" && !malformed {
		return
	}
	var code, subcode int64
	var text string
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "Code":
			code = a.Value.Int64()
		case "Subcode":
			subcode = a.Value.Int64()
		case "Communicated-Reason", "Error":
			text = a.Value.String()
		}
		return true
	})
	switch {
	case malformed:
		h.put(h.peer, "the peer sent a malformed message: "+printable(text))
	case r.Message == "received notification" && text != "":
		h.put(h.peer, fmt.Sprintf("the peer says %q", printable(text)))
	case r.Message == "sent notification" && code == packet.BGP_ERROR_OPEN_MESSAGE_ERROR && subcode == packet.BGP_ERROR_SUB_BAD_PEER_AS:
		h.put(h.peer, "the peer has another ASN than configured")
	}
}

func (h reasonHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		if a.Key == "Key" {
			if addr, err := netip.ParseAddr(a.Value.String()); err == nil {
				h.peer = addr
			}
		}
	}
	h.next = h.next.WithAttrs(attrs)
	return h
}

func (h reasonHandler) WithGroup(name string) slog.Handler {
	h.next = h.next.WithGroup(name)
	return h
}

// explainEnd puts into words how GoBGP says that an established session ended.
func explainEnd(message string) string {
	switch message {
	case "read-failed":
		return "the peer closed the connection"
	case "write-failed":
		return "the peer does not take what is sent"
	case "hold-timer-expired":
		return "nothing was heard from the peer for the hold time"
	}
	return message
}

// printable makes a text from the network safe to show on a terminal, and short.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '.'
	}, strings.ToValidUTF8(s, "."))
	if runes := []rune(s); len(runes) > 128 {
		s = string(runes[:128])
	}
	return s
}
