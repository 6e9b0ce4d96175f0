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
		t.Error("the zero value is a drain")
	}
	if !d.Begin("upgrade") || d.Begin("again") || d.Reason() != "upgrade" {
		t.Error("the drain did not begin exactly once")
	}
	wait := d.Wait()
	if wait(over) == nil {
		t.Error("wait ignores its context")
	}
	d.Complete()
	d.Complete()
	if err := wait(t.Context()); err != nil || d.Wait()(over) != nil {
		t.Errorf("wait after completion: %v", err)
	}
	if !d.End() || d.Reason() != "" {
		t.Error("the drain did not end")
	}
	d.Begin("upgrade")
	wait = d.Wait()
	d.End()
	if wait(t.Context()) == nil {
		t.Error("wait returned no error after an early end")
	}
	d.Begin("upgrade")
	d.Stop()
	if d.End() || d.Reason() != "stopped" {
		t.Error("a stopped drain was ended")
	}
}
