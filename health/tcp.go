package health

import (
	"context"
	"fmt"
	"time"

	"github.com/herald-vip/herald/internal/yaml"
)

// TCP is a connection that must be accepted. It stays open until the next probe, so that its end is noticed at once.
type TCP struct {
	// Address is host:port. Required.
	Address string `yaml:"address"`
}

// Validate implements [Check.Validate] for this kind.
func (t *TCP) Validate(r *yaml.Report, p yaml.Path) { r.HostPort(p.Field("address"), t.Address) }

func (t *TCP) prober(m *Monitor, timeout time.Duration) (prober, error) {
	return &tcpProber{address: t.Address, timeout: timeout, dial: m.dial}, nil
}

// tcpProber opens a connection for each probe and keeps it open and monitored until the next.
type tcpProber struct {
	address string
	timeout time.Duration
	dial    dialFunc
	idleConn
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
	p.idle.watch(discardBanner)
	return outcome{kind: passed, reason: fmt.Sprintf("connected to %s in %v", p.address, round(time.Since(start)))}
}
