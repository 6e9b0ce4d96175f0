package announce

import (
	"net/netip"

	"github.com/herald-vip/herald/bgp/gracefulshutdown"
	"github.com/herald-vip/herald/tenant"
)

// move is a change to be logged.
type move struct {
	stage   gracefulshutdown.Stage
	service string
	origin  tenant.Origin
	addr    netip.Addr
	reason  string

	err       error // what is wrong with a pool, or with the first route that is refused
	pool      string
	route     netip.Prefix
	recovered bool // no route is refused any more
}

func moveOf(x *address, reason string) move {
	return move{stage: x.stage(), service: x.service, origin: x.origin, addr: x.addr, reason: reason}
}

// say logs moves: each in a line of its own, unless they are many.
func (a *Announcer) say(moves []move) {
	const many = 10
	counts := make(map[gracefulshutdown.Stage]int)
	for _, m := range moves {
		switch {
		case m.pool != "":
			a.log.Error("pool cannot be used as it is", "pool", m.pool, "err", m.err)
		case m.err != nil:
			a.log.Error("routes of Services are refused and tried again", "every", retryAfter, "first", m.route, "err", m.err)
		case m.recovered:
			a.log.Info("no route of a Service is refused any more")
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
