package gracefulshutdown

import (
	"context"
	"testing"
)

func TestDrain(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	var d Drain
	if d.End() || d.Reason() != "" || d.Wait()(over) != nil {
		t.Error("there is a drain")
	}
	if !d.Begin("upgrade") || d.Begin("again") || d.Reason() != "upgrade" {
		t.Error("it did not begin once")
	}
	wait := d.Wait()
	if wait(over) == nil {
		t.Error("waits for longer than it may")
	}
	d.Complete()
	d.Complete()
	if err := wait(t.Context()); err != nil || d.Wait()(over) != nil {
		t.Errorf("complete, and yet: %v", err)
	}
	if !d.End() || d.Reason() != "" {
		t.Error("it did not end")
	}
	d.Begin("upgrade")
	wait = d.Wait()
	d.End()
	if wait(t.Context()) == nil {
		t.Error("ended early, and that is no error")
	}
	d.Begin("upgrade")
	d.Stop()
	if d.End() || d.Reason() != "stopped" {
		t.Error("undrained after the end")
	}
}
