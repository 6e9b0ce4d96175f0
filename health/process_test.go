package health_test

import (
	"bufio"
	"crypto/tls"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/wait"
)

// victim is the environment variable that makes the test binary a server that waits to be killed.
const victim = "HERALD_HEALTH_TEST_VICTIM"

// watcher is the environment variable that makes the test binary watch a URL and print each change.
const watcher = "HERALD_HEALTH_TEST_WATCHER"

// freezesInNotify ends the URL of a watcher that freezes itself at the first change, before it prints that.
const freezesInNotify = "/freeze"

func TestMain(m *testing.M) {
	if url := os.Getenv(watcher); url != "" {
		watchUntilKilled(url)
	}
	if os.Getenv(victim) != "" {
		serveUntilKilled()
	}
	goleak.VerifyTestMain(m)
}

func serveUntilKilled() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	_, _ = io.WriteString(os.Stdout, l.Addr().String()+"\n")
	panic(http.Serve(l, http.HandlerFunc(ok)))
}

func watchUntilKilled(url string) {
	told := gob.NewEncoder(os.Stdout)
	freeze := strings.HasSuffix(url, freezesInNotify)
	m := health.NewMonitor(nil, func(v health.Verdict) {
		if freeze {
			freeze = false
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		}
		_ = told.Encode(v)
	})
	c := check()
	c.HTTP.URL = url
	c.Timeout, c.Fall = time.Minute, 20 // a stalled test machine must not look like a dead server
	if err := m.Apply([]health.Check{c}); err != nil {
		panic(err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	m.Close()
	os.Exit(0)
}

// startVictim runs a server in a process of its own and returns it with its address.
func startVictim(t *testing.T) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victim+"=1")
	out := must.Get[io.ReadCloser](t)(cmd.StdoutPipe())
	must.Do(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	address := must.Get[string](t)(bufio.NewReader(out).ReadString('\n'))
	return cmd, strings.TrimSpace(address)
}

// realMonitor checks over the real network and reports each change.
func realMonitor(t *testing.T, checks ...health.Check) <-chan health.Verdict {
	t.Helper()
	told := make(chan health.Verdict, 100)
	m := health.NewMonitor(nil, func(v health.Verdict) { told <- v })
	t.Cleanup(m.Close)
	must.Do(t, m.Apply(checks))
	return told
}

const patience = 30 * time.Second

// next fails the test unless the next change is to this state with this reason.
func next(t *testing.T, told <-chan health.Verdict, want health.State, reason string) health.Verdict {
	t.Helper()
	select {
	case v := <-told:
		if v.State != want || !strings.Contains(v.Reason, reason) {
			t.Fatalf("%v: %q, want %v: …%q…", v.State, v.Reason, want, reason)
		}
		return v
	case <-time.After(patience):
		t.Fatalf("no change within %v, want %v", patience, want)
		return health.Verdict{}
	}
}

// reach waits for a change to this state; a stalled test machine may cause other changes first.
func reach(t *testing.T, told <-chan health.Verdict, want health.State, reason string) {
	t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case v := <-told:
			if v.State == want && strings.Contains(v.Reason, reason) {
				return
			}
		case <-deadline:
			t.Fatalf("not %v: …%q… within %v", want, reason, patience)
		}
	}
}

func nothingMore(t *testing.T, told <-chan health.Verdict) {
	t.Helper()
	select {
	case v := <-told:
		t.Errorf("unexpected change: %+v", v)
	default:
	}
}

// target makes c check a server at address.
func target(c *health.Check, address string) {
	if c.TCP != nil {
		c.TCP.Address = address
	} else {
		c.HTTP.URL = "http://" + address + "/readyz"
	}
}

// A real process is killed. The interval is so long that only the connection
// monitor can detect it, and fall so high that only the refusal can decide.
func TestKilledProcess(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			cmd, address := startVictim(t)
			c := check(v.adjust, once)
			c.Interval, c.Timeout, c.Fall = time.Hour, time.Hour, 1000
			target(&c, address)
			told := realMonitor(t, c)
			next(t, told, health.Healthy, "")
			killed := time.Now()
			must.Do(t, cmd.Process.Kill())
			verdict := next(t, told, health.Unhealthy, "connection refused")
			t.Logf("kill → close seen %v → unhealthy %v", verdict.Cause.Sub(killed), verdict.Since.Sub(verdict.Cause))
			nothingMore(t, told)
		})
	}
}

// A real process is frozen: its kernel still accepts, so only the deadline detects it.
func TestFrozenProcess(t *testing.T) {
	cmd, address := startVictim(t)
	c := check()
	c.HTTP.URL = "http://" + address + "/readyz"
	told := realMonitor(t, c)
	reach(t, told, health.Healthy, "")
	for _, s := range []struct {
		signal os.Signal
		want   health.State
		reason string
	}{
		{syscall.SIGSTOP, health.Unhealthy, "no answer within 500ms"},
		{syscall.SIGCONT, health.Healthy, "200"},
		{syscall.SIGSTOP, health.Unhealthy, "no answer within 500ms"},
	} {
		must.Do(t, cmd.Process.Signal(s.signal))
		reach(t, told, s.want, s.reason)
	}
}

// startWatcher runs a process that checks url and prints each change.
func startWatcher(t *testing.T, url string) (*exec.Cmd, <-chan health.Verdict) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), watcher+"="+url)
	out := must.Get[io.ReadCloser](t)(cmd.StdoutPipe())
	stdin := must.Get[io.WriteCloser](t)(cmd.StdinPipe())
	must.Do(t, cmd.Start())
	told := make(chan health.Verdict, 100)
	var reading sync.WaitGroup
	reading.Go(func() {
		for lines := gob.NewDecoder(out); ; {
			var v health.Verdict
			if lines.Decode(&v) != nil {
				return
			}
			told <- v
		}
	})
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Process.Kill()
		reading.Wait()
		_ = cmd.Wait()
	})
	return cmd, told
}

// The process that checks is frozen, in any phase of a check. When it continues, its old verdict is stale.
func TestFrozenWatcher(t *testing.T) {
	const anywhere, inProbe, inNotify = "anywhere", "in a probe", "in notify"
	for _, phase := range []string{anywhere, inProbe, inNotify} {
		t.Run(phase, func(t *testing.T) {
			t.Parallel()
			var (
				asked atomic.Int64
				hold  sync.Mutex // the answers
			)
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				hold.Lock()
				defer hold.Unlock()
				ok(w, r)
			}))
			defer srv.Close()
			url := srv.URL
			if phase == inNotify {
				url += freezesInNotify
			}
			cmd, told := startWatcher(t, url)
			if phase != inNotify {
				reach(t, told, health.Healthy, "")
			}
			if phase == inProbe {
				hold.Lock()
				before := asked.Load()
				wait.Until(t, "it asks", func() bool { return asked.Load() > before })
			}
			if phase != inNotify {
				must.Do(t, cmd.Process.Signal(syscall.SIGSTOP))
			}
			must.Do(t, unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil))
			if phase == inProbe {
				hold.Unlock()
			}
			frozen := time.Now()
			wait.Until(t, "it is frozen for long", func() bool { return time.Since(frozen) > 4*time.Second })
			must.Do(t, cmd.Process.Signal(syscall.SIGCONT))
			if phase == inNotify {
				next(t, told, health.Healthy, "")
			}
			if v := next(t, told, health.Unhealthy, "this process did not run for"); !v.Paused {
				t.Errorf("verdict %+v", v)
			}
			reach(t, told, health.Healthy, "200")
		})
	}
}

// A process without free descriptors reports its own fault, and recovers.
func TestOutOfDescriptors(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(ok))
	defer srv.Close()
	cmd, told := startWatcher(t, srv.URL)
	reach(t, told, health.Healthy, "")
	var limit unix.Rlimit
	must.Do(t, unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_NOFILE, nil, &limit))
	few := unix.Rlimit{Cur: 1, Max: limit.Max}
	must.Do(t, unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_NOFILE, &few, nil))
	reach(t, told, health.Unhealthy, "check's own: too many open files")
	must.Do(t, unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_NOFILE, &limit, nil))
	reach(t, told, health.Healthy, "200")
}

// Connections end in ways that only a real kernel has.
func TestRealEnds(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(*net.TCPConn) error
	}{
		{"FIN", (*net.TCPConn).Close},
		{"half-close", (*net.TCPConn).CloseWrite},
		{"RST", func(c *net.TCPConn) error { return errors.Join(c.SetLinger(0), c.Close()) }},
	} {
		for _, v := range variants {
			t.Run(v.name+" "+tt.name, func(t *testing.T) {
				l := must.Get[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
				defer l.Close()
				c := check(v.adjust, once)
				c.Interval, c.Timeout, c.Fall = time.Hour, time.Hour, 1000
				target(&c, l.Addr().String())
				told := realMonitor(t, c)
				conn := must.Get[net.Conn](t)(l.Accept())
				defer conn.Close()
				if c.HTTP != nil {
					must.Get[*http.Request](t)(http.ReadRequest(bufio.NewReader(conn)))
					must.Get[int](t)(io.WriteString(conn, empty200))
				}
				next(t, told, health.Healthy, "")
				_ = l.Close()
				must.Do(t, tt.end(conn.(*net.TCPConn)))
				next(t, told, health.Unhealthy, "connection refused")
				nothingMore(t, told)
			})
		}
	}
}

// Thousands of probes with every kind of result leave no descriptor open; TestMain looks for goroutines.
func TestNothingLeaks(t *testing.T) {
	// The first use of the network opens descriptors of the runtime.
	httptest.NewServer(nil).Close()
	before := descriptors(t)

	ca := newAuthority(t, "ca", year)
	var (
		servers []*httptest.Server
		checks  []health.Check
	)
	watch := func(url string, adjust ...func(*health.Check)) {
		c := check(adjust...)
		c.Name, c.Interval, c.Timeout = fmt.Sprint(len(checks)), time.Millisecond, 20*time.Millisecond
		if c.TCP != nil {
			c.TCP.Address = strings.TrimPrefix(url, "http://")
		} else {
			c.HTTP.URL = url
		}
		checks = append(checks, c)
	}
	start := func(secure bool, h http.HandlerFunc) string {
		srv := httptest.NewUnstartedServer(h)
		srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
		if servers = append(servers, srv); secure {
			srv.TLS = &tls.Config{Certificates: []tls.Certificate{ca.issue(t).tls()}}
			srv.StartTLS()
		} else {
			srv.Start()
		}
		return srv.URL
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	watch(start(false, ok))
	watch(start(false, ok), overTCP)
	watch(start(true, ok), overTLS(t, ca))
	watch(start(true, ok), overTLS(t, newAuthority(t, "other", year)))
	watch(start(false, ok), func(c *health.Check) { c.HTTP.CAFile = "/nowhere" })
	watch(start(false, status(500, "no")))
	watch(start(false, status(200, strings.Repeat("x", 200<<10))))
	watch(start(false, hang))
	watch(start(false, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "5")
		_ = http.NewResponseController(w).Flush()
		hang(w, r)
	}))
	watch(start(false, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	watch(start(false, func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Connection", "close"); ok(w, r) }))
	watch(gone.URL)
	watch(gone.URL, overTCP)

	m := health.NewMonitor(nil, nil)
	must.Do(t, m.Apply(checks))
	wait.Until(t, "200 results of each check", func() bool {
		for _, v := range m.Verdicts() {
			if v.Passes+v.Failures < 200 {
				return false
			}
		}
		return true
	})
	for _, v := range m.Verdicts() {
		t.Logf("%v passes, %v failures: %v: %s", v.Passes, v.Failures, v.State, v.Reason)
	}
	m.Close()
	for _, srv := range servers {
		srv.Close()
	}
	wait.Until(t, "all descriptors are closed", func() bool { return descriptors(t) <= before })
}

func descriptors(t *testing.T) int {
	return len(must.Get[[]os.DirEntry](t)(os.ReadDir("/proc/self/fd")))
}

// BenchmarkProbe measures one probe over the real network; the figures include the server, in this process.
func BenchmarkProbe(b *testing.B) {
	ca := newAuthority(b, "ca", year)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(ok))
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{ca.issue(b).tls()}}
	srv.StartTLS()
	defer srv.Close()
	plain := httptest.NewServer(http.HandlerFunc(ok))
	defer plain.Close()
	var dialer net.Dialer
	for _, bb := range []struct {
		name  string
		fresh bool
		check health.Check
	}{
		{"https", false, health.Check{HTTP: &health.HTTP{URL: srv.URL, CAFile: file(b, ca.certPEM())}}},
		{"https fresh", true, health.Check{HTTP: &health.HTTP{URL: srv.URL, CAFile: file(b, ca.certPEM())}}},
		{"http", false, health.Check{HTTP: &health.HTTP{URL: plain.URL}}},
		{"tcp", false, health.Check{TCP: &health.TCP{Address: plain.Listener.Addr().String()}}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			probe, stop, err := health.Probe(bb.check, dialer.DialContext)
			if err != nil {
				b.Fatal(err)
			}
			defer stop()
			b.ReportAllocs()
			for b.Loop() {
				if passes, reason := probe(b.Context()); !passes {
					b.Fatal(reason)
				}
				if bb.fresh {
					stop()
				}
			}
		})
	}
}
