package main

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"
)

// The exit code tells outages, and attempts that this machine could not make, from
// a target that always answers.
func TestProbeExit(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	target := listener.Addr().String()
	command := probeCommand{Target: target, Interval: time.Millisecond, Timeout: 10 * time.Second, Duration: 500 * time.Millisecond, Output: "text"}
	run := func(c probeCommand) (err error) {
		captured(t, &os.Stdout, func() { err = c.Run(t.Context()) })
		return err
	}
	if err := run(command); err != nil {
		t.Errorf("the target answers: %v", err)
	}
	elsewhere := command
	elsewhere.Source = netip.MustParseAddr("192.0.2.1")
	if err := run(elsewhere); !errors.Is(err, errNoAttempt) {
		t.Errorf("from an address of another machine: got %v, want %v", err, errNoAttempt)
	}
	listener.Close()
	if err := run(command); !errors.Is(err, errOutage) {
		t.Errorf("nobody listens: got %v, want %v", err, errOutage)
	}
}
