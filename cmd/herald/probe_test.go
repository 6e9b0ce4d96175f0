package main

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/herald-vip/herald/internal/probe"
	"github.com/herald-vip/herald/testenv/must"
)

// The exit code tells outages, and attempts that this machine could not make, from
// a target that always answers.
func TestProbeExit(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	target := listener.Addr().String()
	run := func(source netip.Addr) (err error) {
		c := probeCommand{Output: "text", Prober: probe.Prober{
			Target: target, Interval: time.Millisecond, Timeout: 10 * time.Second, Duration: 500 * time.Millisecond, Source: source,
		}}
		captured(t, &os.Stdout, func() { err = c.Run(t.Context()) })
		return err
	}
	if err := run(netip.Addr{}); err != nil {
		t.Errorf("the target answers: %v", err)
	}
	if err := run(netip.MustParseAddr("192.0.2.1")); !errors.Is(err, errNoAttempt) {
		t.Errorf("from an address of another machine: got %v, want %v", err, errNoAttempt)
	}
	listener.Close()
	if err := run(netip.Addr{}); !errors.Is(err, errOutage) {
		t.Errorf("no server: got %v, want %v", err, errOutage)
	}
}
