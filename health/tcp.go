package health

import (
	"context"
	"fmt"
	"time"
)

// tcpProber opens a connection for each probe and leaves it open, as the tripwire, until the next.
type tcpProber struct {
	address string
	timeout time.Duration
	dial    dialFunc
	kept
}

func (p *tcpProber) probe(ctx context.Context) outcome {
	p.close()
	start := time.Now()
	raw, err := p.dial(ctx, "tcp", p.address)
	if err != nil {
		out := explain(&stageError{"no connection", err}, p.timeout)
		out.reason = "connect " + p.address + ": " + out.reason
		return out
	}
	p.idle = newWire(raw)
	p.idle.watch(discardGreeting)
	return outcome{kind: passed, reason: fmt.Sprintf("connected to %s in %v", p.address, round(time.Since(start)))}
}
