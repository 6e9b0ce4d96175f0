package balancer

import (
	"context"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/step"
)

// serve runs a server until the test ends, or until stop is called, which returns when
// all its connections are closed.
func serve(t *testing.T, name string) (s *Server, address string, stop func()) {
	t.Helper()
	l := listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	s = &Server{Name: name}
	go func() { done <- s.Serve(ctx, l) }()
	stopped := false
	stop = func() {
		if cancel(); stopped {
			return
		}
		stopped = true
		if err := <-done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Cleanup(stop)
	return s, l.Addr().String(), stop
}

// listen opens a listener; the kernel accepts its connections.
func listen(t *testing.T) net.Listener {
	t.Helper()
	l := must.Get[net.Listener](t)(Listen(t.Context(), "127.0.0.1:0"))
	t.Cleanup(func() { l.Close() })
	return l
}

// run does a task with a result of this type.
func run[T any](ctx context.Context, task Task) (result T, err error) {
	r, err := task.Run(ctx)
	result, _ = r.(T)
	return result, err
}

// TestLoad checks that both kinds of load count the same as the servers.
func TestLoad(t *testing.T) {
	for name, load := range map[string]Load{
		"closed": {Workers: 3, Count: 60},
		"open":   {Rate: 5000, Count: 60, Keep: true},
		"turns":  {Rate: 5000, Count: 60, Turns: &Turns{Began: time.Now(), Last: 2 * time.Millisecond, Of: 2, Mine: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			first, a, _ := serve(t, "one")
			two, b, _ := serve(t, "two")
			load.Targets, load.Timeout = []string{a, b}, time.Minute
			r := must.Get[*LoadResult](t)(run[*LoadResult](t.Context(), load))
			served := map[string]int{"one": int(first.served.Load()), "two": int(two.served.Load())}
			if diff := cmp.Diff(served, r.By); diff != "" || r.Good != 60 || r.Failed != 0 {
				t.Errorf("%d good, %d failed %v (-served +got):\n%s", r.Good, r.Failed, r.Failures, diff)
			}
			if r.Median <= 0 || r.P99 < r.Median || r.Took < r.Median || r.CPU <= 0 {
				t.Errorf("%+v", r)
			}
			if want := map[bool]int{true: 60}[load.Keep]; len(r.Kept) != want {
				t.Errorf("%d connections in the result, want %d", len(r.Kept), want)
			}
		})
	}
}

// TestTurns checks that loads with turns begin connections only in their own turn, as
// many as the rate says, and that the order of turns varies.
func TestTurns(t *testing.T) {
	const loads, inTurn, rounds = 3, 20, 30
	began := time.Date(2026, 11, 22, 2, 0, 0, 0, time.UTC)
	turns := make(map[int]int) // the load that began each connection, by its number
	firsts := make(map[int]bool)
	for mine := range loads {
		l := Load{Rate: 1000, Turns: &Turns{Began: began, Last: inTurn * time.Millisecond, Of: loads, Mine: mine}}
		for i := range rounds * inTurn {
			after := l.due(i, time.Time{}).Sub(began)
			turn, at := int(after/(inTurn*time.Millisecond)), after%(inTurn*time.Millisecond)
			if whose, ok := turns[turn]; ok && whose != mine {
				t.Fatalf("turn %d belongs to loads %d and %d", turn, whose, mine)
			}
			if turns[turn] = mine; turn/loads != i/inTurn || at != time.Duration(i%inTurn)*time.Millisecond {
				t.Fatalf("connection %d of %d begins after %v", i, mine, after)
			}
			if turn%loads == 0 {
				firsts[mine] = true
			}
		}
	}
	if len(turns) != loads*rounds || len(firsts) != loads {
		t.Errorf("%d turns, want %d; %d loads of %d begin a round", len(turns), loads*rounds, len(firsts), loads)
	}
}

// TestLoadEnds checks that a load without a count ends with its context, without an error.
func TestLoadEnds(t *testing.T) {
	_, address, _ := serve(t, "one")
	for _, load := range []Load{{Workers: 2}, {Rate: 1000}} {
		load.Targets = []string{address}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if r, err := run[*LoadResult](ctx, load); err != nil || r.Failed > 0 {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if _, err := (Load{Targets: []string{address}}).Run(t.Context()); err == nil {
		t.Error("a load without targets is accepted")
	}
}

// TestFailures checks that connections fail, with the reason, if no server listens,
// answers, or completes its answer.
func TestFailures(t *testing.T) {
	l, silent, closed := listen(t), listen(t), listen(t)
	closed.Close()
	ended := make(chan struct{})
	go func() { // it hangs up without an answer
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 4096))
			c.Close()
		}
	}()
	defer func() { l.Close(); <-ended }()
	for want, l := range map[string]net.Listener{"refused": closed, "timeout": silent, "unexpected EOF": l} {
		load := Load{Targets: []string{l.Addr().String()}, Workers: 1, Count: 1, Timeout: time.Minute}
		if l == silent {
			load.Timeout = 50 * time.Millisecond
		}
		r := must.Get[*LoadResult](t)(run[*LoadResult](t.Context(), load))
		if len(r.Failures) != 1 || !strings.Contains(r.Failures[0].Failure, want) {
			t.Errorf("%+v, want %s", r.Failures, want)
		}
	}
}

// TestGrip checks that exactly the connections of a closed server are lost, and that
// all are new afterwards.
func TestGrip(t *testing.T) {
	var dialer net.Dialer
	_, first, stop := serve(t, "one")
	_, two, _ := serve(t, "two")
	var turn atomic.Int32
	g := &grip{count: 10, dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, network, []string{first, two}[turn.Add(1)%2])
	}}
	defer g.close()
	for range 2 {
		must.Do(t, step.Run(func() { g.open(t.Context()) }))
		if lost := g.lost(); lost != 0 || turn.Load() != 10 {
			t.Errorf("%d of %d connections lost without a change", lost, turn.Load())
		}
	}
	stop()
	if lost := g.lost(); lost != 5 {
		t.Errorf("%d lost", lost)
	}
	if step.Run(func() { g.open(t.Context()) }) == nil {
		t.Error("connections to a stopped server are still open")
	}
}

// TestHealthCheckStays checks that a connection serves several health checks, and that
// these are not counted.
func TestHealthCheckStays(t *testing.T) {
	s, address, _ := serve(t, "one")
	c := must.Get[net.Conn](t)(net.Dial("tcp", address))
	defer c.Close()
	for range 3 {
		must.Get[int](t)(io.WriteString(c, "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"))
		const want = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
		got := make([]byte, len(want))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
			t.Fatalf("%q, %v", got, err)
		}
	}
	if n := s.served.Load(); n != 0 {
		t.Errorf("%d count", n)
	}
}

// TestBulk checks that bytes arrive, and that their absence is an error.
func TestBulk(t *testing.T) {
	_, address, stop := serve(t, "one")
	bulk := Bulk{Targets: []string{address}, Streams: 2, Time: time.Millisecond}
	r, err := run[*BulkResult](t.Context(), bulk)
	if err != nil || r.Took < time.Millisecond {
		t.Errorf("%+v, %v", r, err)
	}
	turns := Bulk{Targets: []string{address}, Turns: &Turns{Began: time.Now(), Last: time.Millisecond, Of: 2}, Rounds: 3}
	if r, err := run[*BulkResult](t.Context(), turns); err != nil || r.Bytes == 0 || r.Took <= 0 {
		t.Errorf("in turns: %+v, %v", r, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	turns.Turns.Began = time.Now().Add(time.Hour)
	if _, err := turns.Run(ctx); err == nil {
		t.Error("it does not end before its turn")
	}
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := (Bulk{Targets: []string{listen(t).Addr().String()}, Streams: 1, Time: time.Millisecond}).Run(ctx); err == nil {
		t.Error("no error although no byte came")
	}
	stop()
	for _, b := range []Bulk{bulk, turns} {
		if _, err := b.Run(t.Context()); err == nil {
			t.Error("no error although no server listens")
		}
	}
}
