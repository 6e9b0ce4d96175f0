package health_test

import (
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herald-vip/herald/health"
)

// variants are the two kinds of check; each monitors its connection.
var variants = []struct {
	name   string
	adjust func(*health.Check)
}{
	{"http", func(*health.Check) {}},
	{"tcp", overTCP},
}

// bothWays runs a test with each kind of check, against a server that answers 200.
func bothWays(t *testing.T, test func(t *testing.T, b *rig, c health.Check)) {
	for _, v := range variants {
		t.Run(v.name, onRig(func(t *testing.T, b *rig) {
			b.serve(ok)
			test(t, b, check(v.adjust, fall(10)))
		}))
	}
}

// A dead server is unhealthy in no (virtual) time, regardless of fall, and is notified once.
func TestConnectionMonitor(t *testing.T) {
	for _, end := range []struct {
		name  string
		reset bool
	}{{"FIN", false}, {"RST", true}} {
		t.Run(end.name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, b *rig, c health.Check) {
				b.healthy(c)
				pass(70 * time.Millisecond) // between two probes
				killed := time.Now()
				b.kill(end.reset)
				synctest.Wait()
				b.want(health.Unhealthy, "connection refused")
				if v := b.verdict(); v.Since != killed || v.Cause != killed {
					t.Errorf("unhealthy %v after the kill, caused %v after it", v.Since.Sub(killed), v.Cause.Sub(killed))
				}
				pass(time.Minute)
				b.wantHistory("healthy unhealthy")
			})
		})
	}
}

// A dying process closes its connections a moment before its listener.
func TestListenerDiesLast(t *testing.T) {
	for _, v := range variants {
		for _, late := range []time.Duration{time.Microsecond, time.Millisecond, 20 * time.Millisecond} {
			t.Run(v.name+" "+late.String(), onRig(func(t *testing.T, b *rig) {
				var dying atomic.Bool
				b.script(func(c net.Conn) {
					if dying.Load() {
						_ = c.Close()
						return
					}
					answers(empty200)(c)
				})
				b.healthy(check(v.adjust, fall(10)))
				pass(70 * time.Millisecond)
				dying.Store(true)
				b.hangUp()
				began := time.Now()
				pass(late)
				b.become(refusing)
				pass(32 * time.Millisecond)
				b.want(health.Unhealthy, "connection refused")
				// Each connection a TCP check gets is a pass; its end is new evidence.
				if cause := b.verdict().Cause; cause != began && v.name == "http" {
					t.Errorf("caused %v after the first close", cause.Sub(began))
				}
				pass(time.Minute)
				b.wantHistory("healthy unhealthy")
			}))
		}
	}
}

// Servers that end idle connections are healthy, and are not probed in a loop.
func TestIdleConnectionsEnd(t *testing.T) {
	for _, v := range variants {
		for _, idle := range []time.Duration{0, time.Millisecond, 50 * time.Millisecond, 150 * time.Millisecond} {
			t.Run(v.name+" "+idle.String(), onRig(func(t *testing.T, b *rig) {
				b.script(func(c net.Conn) {
					defer c.Close()
					go answers(empty200)(c)
					time.Sleep(idle + time.Microsecond) // in a synctest bubble
				})
				b.healthy(check(v.adjust, fall(1)))
				b.dials()
				pass(time.Minute)
				b.wantHistory("healthy")
				if v := b.verdict(); v.Since.Sub(v.Cause) != 200*time.Millisecond {
					t.Errorf("it took %v to rise: two passes must be an interval apart", v.Since.Sub(v.Cause))
				}
				if n := b.dials(); n < 300 || n > 310 {
					t.Errorf("%d connections in a minute, want about one per interval (300)", n)
				}
			}))
		}
	}
}

// A close is evidence even if the server has hung up too often to trigger a probe by it.
func TestCauseIsTheClose(t *testing.T) {
	onRig(func(t *testing.T, b *rig) {
		b.script(func(c net.Conn) {
			defer c.Close()
			go answers(empty200)(c)
			time.Sleep(150 * time.Millisecond) // in a synctest bubble
		})
		b.healthy(check(fall(10)))
		pass(10 * time.Second) // 10 ms into the interval
		b.become(refusing)
		pass(time.Second)
		if v := b.verdict(); v.State != health.Unhealthy || v.Since.Sub(v.Cause) != 50*time.Millisecond {
			t.Errorf("%v, %v after its cause, want unhealthy 50ms after the close", v.State, v.Since.Sub(v.Cause))
		}
	})(t)
}

// A listener closes all connections, like a proxy without its server: that is no refusal, so fall decides.
func TestCutOffEachTime(t *testing.T) {
	onRig(func(t *testing.T, b *rig) {
		b.serve(ok)
		b.healthy(check(fall(3)))
		pass(70 * time.Millisecond)
		began := time.Now()
		b.serve(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		b.hangUp()
		pass(time.Minute)
		b.want(health.Unhealthy, "connection closed without a whole answer")
		b.wantHistory("healthy unhealthy")
		if v := b.verdict(); v.Cause != began || v.Since.Sub(began) < 400*time.Millisecond {
			t.Errorf("unhealthy %v after the first close: three failures must be two intervals apart", v.Since.Sub(began))
		}
		b.dials()
		pass(time.Minute)
		if n := b.dials(); n > 310 {
			t.Errorf("%d connections in a minute, want one per interval", n)
		}
	})(t)
}

// A frozen server keeps its connections: only the deadline detects it, within an interval and fall timeouts.
func TestFreeze(t *testing.T) {
	onRig(func(t *testing.T, b *rig) {
		b.serve(ok)
		b.healthy(check())
		pass(time.Millisecond) // just after a probe
		b.become(frozen)
		b.serve(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		froze := time.Now()
		pass(5 * time.Second)
		b.want(health.Unhealthy, "no answer within 500ms")
		if took := b.verdict().Since.Sub(froze); took > 1200*time.Millisecond {
			t.Errorf("noticed after %v", took)
		}
		b.become(listening)
		b.serve(ok)
		pass(time.Second)
		b.wantHistory("healthy unhealthy healthy")
	})(t)
}

// A TCP server may send a banner; a flood is bounded and causes no busy loop.
func TestTCPServerTalks(t *testing.T) {
	for _, tt := range []struct {
		name   string
		talk   func(net.Conn)
		notice time.Duration // until its death is detected
	}{
		{"greeting", says("SSH-2.0-OpenSSH_9.2\r\n"), 0},
		{"flood", func(c net.Conn) { endless(c, "", strings.Repeat("chargen ", 1<<10)) }, 200 * time.Millisecond},
	} {
		t.Run(tt.name, onRig(func(t *testing.T, b *rig) {
			b.script(tt.talk)
			b.healthy(check(overTCP, fall(10)))
			b.dials()
			pass(time.Minute)
			b.wantHistory("healthy")
			if n := b.dials(); n > 310 {
				t.Errorf("%d connections in a minute", n)
			}
			pass(70 * time.Millisecond)
			b.kill(false)
			pass(tt.notice)
			b.wantHistory("healthy unhealthy")
		}))
	}
}
