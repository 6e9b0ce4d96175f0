package health

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/herald-vip/herald/health/sandbox"
)

// Probe makes one probe of c after another until stop is called.
func Probe(c Check, dial func(ctx context.Context, network, address string) (net.Conn, error)) (probe func(context.Context) (passes bool, reason string), stop func(), err error) {
	p, err := (&Monitor{dial: dial, sandbox: sandbox.New()}).newProber(c.clone())
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context) (bool, string) {
		out := p.probe(ctx)
		return out.kind == passed, out.reason
	}, p.close, nil
}

// NewMonitorOver returns a Monitor that connects by dial.
func NewMonitorOver(dial func(ctx context.Context, network, address string) (net.Conn, error), log *slog.Logger, notify func(Verdict)) *Monitor {
	m := NewMonitor(log, notify)
	m.dial = dial
	return m
}

// Suspend makes m find that the machine slept for d.
func (m *Monitor) Suspend(d time.Duration) {
	m.pauses.mu.Lock()
	defer m.pauses.mu.Unlock()
	m.pauses.before -= d
}
