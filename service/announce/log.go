package announce

import (
	"net/netip"

	"github.com/herald-vip/herald/bgp/gracefulshutdown"
	"github.com/herald-vip/herald/service"
)

// move is a change for the log.
type move struct {
	stage   gracefulshutdown.Stage
	service string
	origin  service.Origin
	addr    netip.Addr
	reason  string

	err       error // of a pool, or of the first refused route
	pool      string
	route     netip.Prefix
	recovered bool // the router accepts all routes again
}

func moveOf(x *address, reason string) move {
	return move{stage: x.stage(), service: x.service, origin: x.origin, addr: x.addr, reason: reason}
}

// logMoves logs each move in its own line, or their counts if there are many.
func (a *Announcer) logMoves(moves []move) {
	const many = 10
	counts := make(map[gracefulshutdown.Stage]int)
	for _, m := range moves {
		switch {
		case m.pool != "":
			a.log.Error("pool is invalid; its last valid version stays in use", "pool", m.pool, "err", m.err)
		case m.err != nil:
			a.log.Error("router refuses routes of Services; retrying", "every", retryAfter, "first", m.route, "err", m.err)
		case m.recovered:
			a.log.Info("router accepts all routes of Services again")
		case len(moves) > many:
			counts[m.stage]++
		default:
			attrs := append([]any{"service", m.service, "address", m.addr}, m.origin.Attrs()...)
			if m.reason != "" {
				attrs = append(attrs, "reason", m.reason)
			}
			a.log.Info("service "+string(m.stage), attrs...)
		}
	}
	for _, stage := range []gracefulshutdown.Stage{gracefulshutdown.Withdrawn, gracefulshutdown.Announced, gracefulshutdown.Draining} {
		if n := counts[stage]; n > 0 {
			a.log.Info("services "+string(stage), "addresses", n)
		}
	}
}
