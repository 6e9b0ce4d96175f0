package bgp

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/herald-vip/herald/internal/text"
)

// longestText bounds the length of a quoted text from a peer.
const longestText = 128

// reasons remembers why sessions ended, by the address of the peer. GoBGP puts some reasons only in its log, so a log
// handler collects them. They are the peer's message when it closed the session (RFC 9003), the fault of a malformed
// message, and a different ASN. Herald logs sessions itself; the rest of GoBGP's log appears at debug level.
type reasons struct {
	mu   sync.Mutex
	said map[netip.Addr]string
}

// The recognised lines of GoBGP's log. Nothing else in Herald depends on its wording.
const (
	logReceived  = "received notification"
	logSent      = "sent notification"
	logMalformed = "Session will be reset due to malformed BGP" // followed by the type of the message
)

func (r *reasons) put(peer netip.Addr, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said[peer] = reason
}

// take returns and forgets the last reason for the peer at addr.
func (r *reasons) take(addr netip.Addr) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	said := r.said[addr]
	delete(r.said, addr)
	return said
}

// reasonHandler is the log handler of GoBGP.
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
	r.Level, r.Message = slog.LevelDebug, "gobgp: "+r.Message
	return h.next.Handle(ctx, r)
}

// learn remembers the reason in a line about the peer.
func (h reasonHandler) learn(r slog.Record) {
	malformed := strings.HasPrefix(r.Message, logMalformed)
	if !malformed && r.Message != logReceived && r.Message != logSent {
		return
	}
	attrs := make(map[string]slog.Value)
	r.Attrs(func(a slog.Attr) bool {
		attrs[a.Key] = a.Value
		return true
	})
	equal := func(key string, number int) bool { return attrs[key].Equal(slog.IntValue(number)) }
	communicated, said := attrs["Communicated-Reason"]
	switch {
	case malformed:
		h.put(h.peer, "the peer sent a malformed message: "+text.Short(attrs["Error"].String(), longestText))
	case r.Message == logReceived && said && communicated.String() != "":
		h.put(h.peer, fmt.Sprintf("the peer says %q", text.Short(communicated.String(), longestText)))
	case r.Message == logSent && equal("Code", bgp.BGP_ERROR_OPEN_MESSAGE_ERROR) && equal("Subcode", bgp.BGP_ERROR_SUB_BAD_PEER_AS):
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
