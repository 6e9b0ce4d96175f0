package health_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herald-vip/herald/health"
)

// status answers with a status and a body.
func status(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

func TestAnswers(t *testing.T) {
	const slow = 400 * time.Millisecond
	for _, tt := range []struct {
		name    string
		handler http.HandlerFunc
		script  func(net.Conn) // instead of handler
		state   health.State
		reason  string
	}{
		{name: "200", handler: ok, state: health.Healthy, reason: "200 in 0s"},
		{name: "accepted 401", handler: status(401, ""), state: health.Healthy, reason: "401 in "},
		{name: "403", handler: status(403, ""), state: health.Unhealthy, reason: "403: anonymous access is forbidden, set clientCertFile or tokenFile"},
		{name: "404", handler: http.NotFound, state: health.Unhealthy, reason: "404: 404 page not found"},
		{name: "500", handler: status(500, "[+]ping ok\n[-]etcd failed: reason withheld\nreadyz check failed\n"), state: health.Unhealthy, reason: "GET http://127.0.0.1:8080/readyz: 500: [-]etcd failed"},
		{name: "503", handler: status(503, "shutting down"), state: health.Unhealthy, reason: "503: shutting down"},
		{name: "429", handler: status(429, "busy"), state: health.Unknown, reason: "429: busy"},
		{name: "redirect", handler: http.RedirectHandler("https://elsewhere/", http.StatusFound).ServeHTTP, state: health.Unhealthy, reason: "302: redirects are not followed (to https://elsewhere/)"},
		{
			name:    "slow but in time",
			handler: func(w http.ResponseWriter, r *http.Request) { pause(r, slow); ok(w, r) },
			state:   health.Healthy, reason: "200 in 400ms",
		}, {
			name:    "never",
			handler: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			state:   health.Unhealthy, reason: "no answer within 500ms",
		}, {
			name: "body stalls",
			handler: func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, "o")
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			},
			state: health.Unhealthy, reason: "headers in 0s, then 1 B of the body and no end within 500ms",
		}, {
			name: "body trickles",
			handler: func(w http.ResponseWriter, r *http.Request) {
				for r.Context().Err() == nil {
					_, _ = io.WriteString(w, "o")
					_ = http.NewResponseController(w).Flush()
					pause(r, 60*time.Millisecond)
				}
			},
			state: health.Unhealthy, reason: "headers in 0s, then 9 B of the body and no end within 500ms",
		}, {
			name:    "long body",
			handler: status(200, strings.Repeat("x", 1<<19)),
			state:   health.Healthy, reason: "200 in ",
		}, {
			name:   "endless body",
			script: func(c net.Conn) { endless(c, "HTTP/1.1 200 OK\r\n\r\n", strings.Repeat("x", 1<<12)) },
			state:  health.Unhealthy, reason: "200, then 1 MiB without an end: check a URL with a short answer",
		}, {
			name: "endless body in chunks",
			script: func(c net.Conn) {
				endless(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", strings.Repeat("1\r\nx\r\n", 1<<10))
			},
			state: health.Unhealthy, reason: "200, then 1 MiB without an end: check a URL with a short answer",
		}, {
			name: "declared long body",
			script: func(c net.Conn) {
				endless(c, "HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n", strings.Repeat("x", 1<<12))
			},
			state: health.Unhealthy, reason: "200, then 1 MiB without an end: check a URL with a short answer",
		}, {
			name:   "endless headers",
			script: func(c net.Conn) { endless(c, "HTTP/1.1 200 OK\r\n", strings.Repeat("X: y\r\n", 1<<10)) },
			state:  health.Unhealthy, reason: "more than 128 KiB of headers",
		}, {
			name:   "endless interim answers",
			script: func(c net.Conn) { endless(c, "", strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 1<<10)) },
			state:  health.Unhealthy, reason: "only interim answers",
		}, {
			name:   "interim answer first",
			script: answers("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"),
			state:  health.Healthy, reason: "204 in ",
		}, {
			name:   "old HTTP",
			script: hangsUpAfter("HTTP/1.0 200 OK\r\n\r\nfine"),
			state:  health.Healthy, reason: "200 in ",
		}, {
			name:   "not HTTP",
			script: says("SSH-2.0-OpenSSH_9.2\r\n"),
			state:  health.Unhealthy, reason: `malformed HTTP response "SSH-2.0-OpenSSH_9.2"`,
		}, {
			name:   "answer cut short",
			script: hangsUpAfter("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfine"),
			state:  health.Unhealthy, reason: "connection closed without a whole answer",
		}, {
			name:   "hangs up",
			script: func(c net.Conn) { _ = c.Close() },
			state:  health.Unhealthy, reason: "connection closed without a whole answer",
		},
	} {
		t.Run(tt.name, onRig(func(t *testing.T, b *rig) {
			if tt.handler != nil {
				b.serve(tt.handler)
			} else {
				b.script(tt.script)
			}
			c := check(once)
			c.HTTP.Status = []int{200, 204, 401}
			b.apply(c)
			pass(time.Second)
			b.want(tt.state, tt.reason)
		}))
	}
}

// pause waits, but no longer than the client does.
func pause(r *http.Request, d time.Duration) {
	select {
	case <-time.After(d):
	case <-r.Context().Done():
	}
}

func endless(c net.Conn, once, again string) {
	go func() { _, _ = io.Copy(io.Discard, c) }()
	_, err := io.WriteString(c, once)
	for err == nil {
		_, err = io.WriteString(c, again)
	}
}

// hangsUpAfter reads a request, answers it and closes.
func hangsUpAfter(s string) func(net.Conn) {
	return func(c net.Conn) {
		defer c.Close()
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			_, _ = io.WriteString(c, s)
		}
	}
}

func TestDialFailures(t *testing.T) {
	for _, tt := range []struct {
		name     string
		state    portState
		adjust   func(*health.Check)
		reason   string
		decideIn time.Duration
	}{
		{"http refused", refusing, func(*health.Check) {}, "GET http://127.0.0.1:8080/readyz: connection refused", 0},
		{"http silent", silent, func(*health.Check) {}, "no connection within 500ms", time.Second},
		{"http frozen", frozen, func(*health.Check) {}, "no answer within 500ms", time.Second},
		{"https frozen", frozen, func(c *health.Check) { c.HTTP.URL = "https://127.0.0.1:6443/readyz" }, "no TLS handshake within 500ms", time.Second},
		{"tcp refused", refusing, overTCP, "connect 127.0.0.1:5001: connection refused", 0},
		{"tcp silent", silent, overTCP, "no connection within 500ms", time.Second},
	} {
		t.Run(tt.name, onRig(func(t *testing.T, b *rig) {
			b.become(tt.state)
			start := time.Now()
			b.apply(check(tt.adjust))
			pass(5 * time.Second)
			b.want(health.Unhealthy, tt.reason)
			b.wantHistory("unhealthy")
			if v := b.verdict(); v.Since.Sub(start) != tt.decideIn || v.Cause != start {
				t.Errorf("unhealthy after %v because of what was seen after %v, want %v and 0s", v.Since.Sub(start), v.Cause.Sub(start), tt.decideIn)
			}
		}))
	}
}

// One connection serves the requests for a second, then a fresh one does.
func TestConnectionReuse(t *testing.T) {
	onRig(func(t *testing.T, b *rig) {
		var asked atomic.Int64
		b.serve(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			if r.Host != "127.0.0.1:8080" || r.URL.Path != "/readyz" || r.Method != http.MethodGet {
				t.Errorf("asked %s %s of %s", r.Method, r.URL, r.Host)
			}
			ok(w, r)
		})
		b.healthy(check())
		asked.Store(0)
		b.dials()
		pass(10 * time.Second)
		if dials := b.dials(); dials != 10 || asked.Load() != 50 {
			t.Errorf("%d requests over %d connections in 10 s, want 50 over 10", asked.Load(), dials)
		}
	})(t)
}

// A long answer within the limit leaves the connection to the next probe, repeatedly.
func TestLongAnswersReuse(t *testing.T) {
	onRig(func(t *testing.T, b *rig) {
		b.serve(status(200, strings.Repeat("x", 600<<10)))
		b.healthy(check())
		b.dials()
		pass(10 * time.Second)
		if dials := b.dials(); dials != 10 {
			t.Errorf("%d connections in 10 s, want 10", dials)
		}
	})(t)
}

// After these answers the connection is not reusable: the next probe, at its normal time, opens a fresh one.
func TestAnswersThatEndTheConnection(t *testing.T) {
	for _, tt := range []struct {
		name   string
		script func(net.Conn)
	}{
		{"connection: close", answers("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")},
		{"HTTP/1.0", answers("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n")},
		{"more than was asked for", answers(empty200 + "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n")},
	} {
		t.Run(tt.name, onRig(func(t *testing.T, b *rig) {
			b.script(tt.script)
			b.healthy(check(once))
			pass(9 * time.Second)
			b.wantHistory("healthy")
			if dials := b.dials(); dials != 51 {
				t.Errorf("%d connections in 10 s, want one per probe", dials)
			}
		}))
	}
}

// A server that restarts between two probes costs no failure: only the kept
// connection is dead. It does not use up the fast re-probes either.
func TestRestartBetweenProbes(t *testing.T) {
	onRig(func(t *testing.T, b *rig) {
		b.serve(ok)
		b.healthy(check(once))
		for range 10 {
			b.hangUp()
			pass(time.Second + 70*time.Millisecond)
		}
		b.wantHistory("healthy")
		if v := b.verdict(); v.Failures != 0 {
			t.Errorf("%d failures", v.Failures)
		}
		b.kill(false)
		synctest.Wait()
		b.wantHistory("healthy unhealthy")
	})(t)
}

// In any state, a server that ends a kept connection just as the next request arrives costs no failure.
func TestReusedConnectionIsCut(t *testing.T) {
	onRig(func(t *testing.T, b *rig) {
		b.script(func(c net.Conn) {
			defer c.Close()
			r := bufio.NewReader(c)
			if _, err := http.ReadRequest(r); err == nil {
				_, _ = io.WriteString(c, empty200)
				_, _ = http.ReadRequest(r)
			}
		})
		b.apply(check(func(c *health.Check) { c.Rise, c.Fall = 50, 1 }))
		pass(time.Minute)
		b.wantHistory("healthy")
		if v := b.verdict(); v.Failures != 0 {
			t.Errorf("%d failures", v.Failures)
		}
	})(t)
}

// A server serves its existing connections but accepts no new ones.
func TestAcceptsNobody(t *testing.T) {
	onRig(func(t *testing.T, b *rig) {
		b.serve(ok)
		b.healthy(check())
		b.become(frozen)
		wedged := time.Now()
		pass(5 * time.Second)
		b.want(health.Unhealthy, "no answer within 500ms")
		if took := b.verdict().Since.Sub(wedged); took > 2200*time.Millisecond {
			t.Errorf("noticed after %v, want at most 1s of reuse, an interval and two timeouts", took)
		}
	})(t)
}

// Probes start at the interval and never overlap; a slow one delays the next.
func TestPace(t *testing.T) {
	for _, tt := range []struct{ answer, gap time.Duration }{
		{0, 200 * time.Millisecond},
		{150 * time.Millisecond, 200 * time.Millisecond},
		{350 * time.Millisecond, 350 * time.Millisecond},
	} {
		t.Run(tt.answer.String(), onRig(func(t *testing.T, b *rig) {
			var (
				mu    sync.Mutex
				began []time.Time
			)
			b.serve(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				began = append(began, time.Now())
				mu.Unlock()
				pause(r, tt.answer)
				ok(w, r)
			})
			b.healthy(check())
			pass(10 * time.Second)
			mu.Lock()
			defer mu.Unlock()
			for i := range began[1:] {
				if gap := began[i+1].Sub(began[i]); gap != tt.gap {
					t.Fatalf("probe %d began %v after the one before, want %v", i+1, gap, tt.gap)
				}
			}
		}))
	}
}

// A live server that does not answer in time becomes unhealthy, but not by a single late
// answer.
func TestSlow(t *testing.T) {
	for _, tt := range []struct {
		name   string
		late   http.HandlerFunc
		reason string
	}{
		{"answer", func(w http.ResponseWriter, r *http.Request) { pause(r, 600*time.Millisecond); ok(w, r) }, "no answer within 500ms"},
		{"body", func(w http.ResponseWriter, r *http.Request) {
			pause(r, 100*time.Millisecond)
			_, _ = io.WriteString(w, "o")
			_ = http.NewResponseController(w).Flush()
			pause(r, 500*time.Millisecond)
			_, _ = io.WriteString(w, "k")
		}, "headers in 100ms, then 1 B of the body and no end within 500ms"},
	} {
		t.Run(tt.name, onRig(func(t *testing.T, b *rig) {
			b.serve(ok)
			b.healthy(check())
			var left atomic.Int64 // late answers
			b.serve(func(w http.ResponseWriter, r *http.Request) {
				if left.Add(-1) >= 0 {
					tt.late(w, r)
					return
				}
				ok(w, r)
			})
			for range 3 {
				left.Store(1)
				pass(2 * time.Second)
			}
			if v := b.verdict(); v.Failures != 3 {
				t.Errorf("%d failures, want the three late answers", v.Failures)
			}
			b.wantHistory("healthy")

			left.Store(1 << 40)
			slow := time.Now()
			pass(5 * time.Second)
			b.want(health.Unhealthy, tt.reason)
			b.wantHistory("healthy unhealthy")
			// The documented limit is Interval + Fall × Timeout.
			if took := b.verdict().Since.Sub(slow); took > 1200*time.Millisecond {
				t.Errorf("found after %v", took)
			}

			left.Store(0)
			pass(2 * time.Second)
			b.want(health.Healthy, "200 in")
		}))
	}
}

// A server that fails now and then changes state exactly by rise and fall.
func TestFlapping(t *testing.T) {
	for _, tt := range []struct {
		name, answers string // one letter per probe, repeated: p(ass), f(ail)
		history       string // over four rounds
	}{
		{"never twice", "pf", ""},
		{"twice, but the way back is too short", "ffp", "unhealthy"},
		{"as long down as up", "ppff", "healthy unhealthy healthy unhealthy healthy unhealthy healthy unhealthy"},
	} {
		t.Run(tt.name, onRig(func(t *testing.T, b *rig) {
			var n atomic.Int64
			b.serve(func(w http.ResponseWriter, r *http.Request) {
				if tt.answers[int(n.Add(1)-1)%len(tt.answers)] == 'f' {
					w.WriteHeader(http.StatusInternalServerError)
				}
			})
			b.apply(check())
			for n.Load() < int64(4*len(tt.answers)) {
				pass(100 * time.Millisecond)
			}
			b.wantHistory(tt.history)
		}))
	}
}

// 429 is overload, not death: fault 6.
func TestOverload(t *testing.T) {
	onRig(func(t *testing.T, b *rig) {
		var code, n atomic.Int64
		code.Store(200)
		b.serve(func(w http.ResponseWriter, r *http.Request) {
			status(int(code.Load()), fmt.Sprintf("slow down, request %d", n.Add(1)))(w, r)
		})
		b.healthy(check(once))

		code.Store(429)
		pass(time.Minute)
		b.wantHistory("healthy healthy") // the second has the warning
		v := b.verdict()
		if v.State != health.Healthy || !strings.HasPrefix(v.Warning, "overloaded: ") || v.Failures != 0 {
			t.Errorf("overloaded: %+v", v)
		}
		code.Store(200)
		pass(9 * time.Second)
		b.wantHistory("healthy healthy")
		pass(2 * time.Second)
		b.wantHistory("healthy healthy healthy")
		if w := b.verdict().Warning; w != "" {
			t.Errorf("still warns: %q", w)
		}

		b.kill(false)
		pass(time.Second)
		b.become(listening)
		code.Store(429)
		pass(time.Minute)
		b.want(health.Unhealthy, "429")
	})(t)
}
