package probe_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/herald-vip/herald/internal/probe"
	"github.com/herald-vip/herald/testenv/must"
)

func netipAddr(s string) netip.Addr { return netip.MustParseAddr(s) }

// runCount runs p until it has seen n attempts that say something of the target. On a busy
// machine others may not.
func runCount(t *testing.T, p *probe.Prober, n int) *probe.Result {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen := 0
	p.OnEvent = func(e probe.Event) {
		if e.Attempt.Outcome.Inconclusive() {
			return
		}
		if seen++; seen == n {
			cancel()
		}
	}
	res, err := p.Run(ctx)
	if err != nil {
		t.Fatalf("Run: %v", err)
	}
	return res
}

// conclusive counts the attempts that say something of the target.
func conclusive(r *probe.Result) int {
	return r.Total - r.Outcomes[probe.Stalled] - r.Outcomes[probe.Local]
}

// serve accepts connections, answers each of them, and closes it.
func serve(t *testing.T, answer func(net.Conn)) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			answer(conn)
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l
}

func TestLoopback(t *testing.T) {
	open := serve(t, func(net.Conn) {})
	closed := serve(t, func(net.Conn) {})
	closed.Close()

	if res := runCount(t, &probe.Prober{Target: open.Addr().String()}, 20); res.Failed > 0 || res.Outcomes[probe.OK] < 20 {
		t.Errorf("open port: outcomes %v, want all ok", res.Outcomes)
	}
	res := runCount(t, &probe.Prober{Target: closed.Addr().String(), Source: netipAddr("127.0.0.9")}, 20)
	if res.Failed != conclusive(res) || res.Outcomes[probe.Refused] != res.Failed {
		t.Errorf("closed port: outcomes %v, want all refused", res.Outcomes)
	}
}

func TestSource(t *testing.T) {
	from := make(chan string, 1)
	l := serve(t, func(conn net.Conn) {
		select {
		case from <- conn.RemoteAddr().(*net.TCPAddr).IP.String():
		default:
		}
	})
	runCount(t, &probe.Prober{Target: l.Addr().String(), Source: netipAddr("127.0.0.9")}, 1)
	if got := <-from; got != "127.0.0.9" {
		t.Errorf("connected from %s, want 127.0.0.9", got)
	}
}

// Connections closed the ordinary way would wait for a minute each.
func TestNoTimeWait(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	// No process accepts: the kernel completes the handshake, and the prober closes first.
	res := runCount(t, &probe.Prober{Target: l.Addr().String()}, 20)
	if res.Outcomes[probe.OK] < 20 {
		t.Fatalf("outcomes %v, want 20 ok", res.Outcomes)
	}
	table := must.Get[[]byte](t)(os.ReadFile("/proc/net/tcp"))
	hexPort := strings.ToUpper(strconv.FormatInt(int64(port), 16))
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		const timeWait, finWait1, finWait2 = "06", "04", "05"
		if len(fields) > 3 && strings.HasSuffix(fields[2], ":"+hexPort) &&
			(fields[3] == timeWait || fields[3] == finWait1 || fields[3] == finWait2) {
			t.Fatalf("a closed connection lingers: %s", line)
		}
	}
}

func TestIdentify(t *testing.T) {
	var n atomic.Int64
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Served-By", []string{"m1", "m2"}[n.Add(1)%2])
		w.WriteHeader(http.StatusServiceUnavailable) // identified all the same
	})
	plain := httptest.NewServer(handler)
	defer plain.Close()
	secure := httptest.NewTLSServer(handler)
	defer secure.Close()

	tests := map[string]*probe.Prober{
		"http":  {Target: plain.Listener.Addr().String(), Identify: true},
		"https": {Target: secure.Listener.Addr().String(), Identify: true, TLS: secure.Client().Transport.(*http.Transport).TLSClientConfig},
	}
	for name, p := range tests {
		t.Run(name, func(t *testing.T) {
			p.Timeout = 5e9 // a loaded machine must not fail this
			res := runCount(t, p, 20)
			if res.Servers["m1"] == 0 || res.Servers["m2"] == 0 || res.Servers["m1"]+res.Servers["m2"] != conclusive(res) {
				t.Errorf("servers %v of %d attempts, want m1 and m2 only", res.Servers, res.Total)
			}
		})
	}
}

func TestIdentifyFailures(t *testing.T) {
	hangUp := func(conn net.Conn) { bufio.NewReader(conn).ReadString('\n') }
	garble := func(conn net.Conn) { hangUp(conn); conn.Write([]byte("SSH-2.0-dropbear\r\n\r\n")) }
	listen := func(conn net.Conn) { conn.Read(make([]byte, 1<<16)); conn.Read(make([]byte, 1)) }

	tests := []struct {
		name   string
		answer func(net.Conn)
		prober *probe.Prober
		want   probe.Outcome
	}{
		{"closes without an answer", hangUp, &probe.Prober{Identify: true, Timeout: 5e9}, probe.Reset},
		{"speaks another protocol", garble, &probe.Prober{Identify: true, Timeout: 5e9}, probe.Other},
		{"accepts and stays silent", listen, &probe.Prober{Identify: true}, probe.Timeout},
		{"silent in the handshake", listen, &probe.Prober{TLS: &tls.Config{ServerName: "m1"}}, probe.Timeout},
		{"no TLS", garble, &probe.Prober{TLS: &tls.Config{ServerName: "m1"}, Timeout: 5e9}, probe.Other},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := tt.prober
			p.Target, p.Interval = serve(t, tt.answer).Addr().String(), 1e9
			res := runCount(t, p, 1)
			if n := res.Outcomes[tt.want]; n == 0 || n != conclusive(res) {
				t.Errorf("outcomes %v, want %v only", res.Outcomes, tt.want)
			}
		})
	}
}
