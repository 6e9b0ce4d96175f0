package balance

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// serve runs a server until the test ends, or stop is called, which returns when all its
// connections are closed.
func serve(t *testing.T, name string) (s *Server, address string, stop func()) {
	t.Helper()
	l, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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

// TestLoad wants both kinds of load to count what the servers count.
func TestLoad(t *testing.T) {
	for name, load := range map[string]Load{
		"closed": {Workers: 3, Count: 60},
		"open":   {Rate: 5000, Count: 60, Keep: true},
		"turns":  {Rate: 5000, Count: 60, Turns: &Turns{Began: time.Now(), Last: 2 * time.Millisecond, Of: 2, Mine: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			one, a, _ := serve(t, "one")
			two, b, _ := serve(t, "two")
			load.Targets, load.Timeout = []string{a, b}, time.Minute
			r, err := load.Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			served := map[string]int{"one": int(one.served.Load()), "two": int(two.served.Load())}
			if diff := cmp.Diff(served, r.By); diff != "" || r.Good != 60 || r.Failed != 0 {
				t.Errorf("%d good, %d failed %v (-served +got):\n%s", r.Good, r.Failed, r.Failures, diff)
			}
			if r.Median <= 0 || r.P99 < r.Median || r.Took < r.Median || r.CPU <= 0 {
				t.Errorf("%+v", r)
			}
			if want := map[bool]int{true: 60}[load.Keep]; len(r.Kept) != want {
				t.Errorf("%d are kept, want %d", len(r.Kept), want)
			}
		})
	}
}

// TestTurns wants loads that take turns to begin no connections in each other's, each as many in
// a turn as its rate says, and their order to vary.
func TestTurns(t *testing.T) {
	const loads, inTurn, rounds = 3, 20, 30
	began := time.Date(2026, 11, 22, 2, 0, 0, 0, time.UTC)
	turns := make(map[int]int) // by their numbers: whose they are
	firsts := make(map[int]bool)
	for mine := range loads {
		l := Load{Rate: 1000, Turns: &Turns{Began: began, Last: inTurn * time.Millisecond, Of: loads, Mine: mine}}
		for i := range rounds * inTurn {
			after := l.due(i, time.Time{}).Sub(began)
			turn, at := int(after/(inTurn*time.Millisecond)), after%(inTurn*time.Millisecond)
			if whose, ok := turns[turn]; ok && whose != mine {
				t.Fatalf("turn %d is of %d and of %d", turn, whose, mine)
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
		t.Errorf("%d turns of %d, %d loads of %d begin one", len(turns), loads*rounds, len(firsts), loads)
	}
}

// TestLoadEnds wants a load without a count to end with its context, and that to be no error.
func TestLoadEnds(t *testing.T) {
	_, address, _ := serve(t, "one")
	for _, load := range []Load{{Workers: 2}, {Rate: 1000}} {
		load.Targets = []string{address}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if r, err := load.Run(ctx); err != nil || r.Failed > 0 {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if _, err := (Load{Targets: []string{address}}).Run(t.Context()); err == nil {
		t.Error("a load of nothing is one")
	}
}

// TestCauses wants to be told why connections fail.
func TestCauses(t *testing.T) {
	listener := func(behave func(net.Conn)) string {
		l, err := Listen(t.Context(), "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		t.Cleanup(func() { l.Close(); <-done })
		go func() {
			defer close(done)
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				behave(c)
				defer c.Close()
			}
		}()
		return l.Addr().String()
	}
	l, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := l.Addr().String()
	l.Close()
	for want, target := range map[Cause]string{
		Refused: closed,
		Silent:  listener(func(net.Conn) {}),
		Ended: listener(func(c net.Conn) {
			_, _ = c.Read(make([]byte, longestRequest))
			c.Close()
		}),
		Reset: listener(func(c net.Conn) {
			_, _ = c.Read(make([]byte, longestRequest))
			_ = c.(*net.TCPConn).SetLinger(0)
			c.Close()
		}),
	} {
		patience := time.Minute
		if want == Silent {
			patience = 50 * time.Millisecond
		}
		r, err := Load{Targets: []string{target}, Workers: 1, Count: 1, Timeout: patience}.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Failures) != 1 || r.Failures[0].Cause != want {
			t.Errorf("%+v, want %s", r.Failures, want)
		}
	}
}

// TestHold wants held connections to be lost with their server, and only those.
func TestHold(t *testing.T) {
	var dialer net.Dialer
	_, one, stop := serve(t, "one")
	_, two, _ := serve(t, "two")
	turn := make(chan string, 10)
	for range 5 {
		turn <- one
		turn <- two
	}
	h, err := Hold(t.Context(), func(ctx context.Context, network, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, network, <-turn)
	}, "", 10)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if diff := cmp.Diff(map[string]int{"one": 5, "two": 5}, h.By()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if lost, reason := h.Echo("first"); lost != 0 {
		t.Errorf("%d lost at rest: %v", lost, reason)
	}
	stop()
	for range 2 {
		if lost, reason := h.Echo("second"); lost != 5 || reason == nil {
			t.Errorf("%d lost: %v", lost, reason)
		}
	}
}

// TestHealthCheckStays wants a connection to serve several health checks, none of which counts.
func TestHealthCheckStays(t *testing.T) {
	s, address, _ := serve(t, "one")
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 3 {
		if _, err := io.WriteString(c, "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
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

// TestBulk wants bytes, and an error where there are none.
func TestBulk(t *testing.T) {
	_, address, stop := serve(t, "one")
	bulk := Bulk{Targets: []string{address}, Streams: 2, Time: time.Millisecond}
	r, err := bulk.Run(t.Context())
	if err != nil || r.Took < time.Millisecond {
		t.Errorf("%+v, %v", r, err)
	}
	turns := Bulk{Targets: []string{address}, Turns: &Turns{Began: time.Now(), Last: time.Millisecond, Of: 2}, Rounds: 3}
	if r, err := turns.Run(t.Context()); err != nil || r.Bytes == 0 || r.Took <= 0 {
		t.Errorf("in turns: %+v, %v", r, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	turns.Turns.Began = time.Now().Add(time.Hour)
	if _, err := turns.Run(ctx); err == nil {
		t.Error("it does not end before its turn")
	}
	stop()
	for _, b := range []Bulk{bulk, turns} {
		if _, err := b.Run(t.Context()); err == nil {
			t.Error("there is nobody, and no error")
		}
	}
}

// TestEventually wants tries until one succeeds, and the reason of the last if none does.
func TestEventually(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		if err := Eventually(t.Context(), func() error {
			if tries++; tries < 3 {
				return io.EOF
			}
			return nil
		}); err != nil || tries != 3 {
			t.Errorf("%v after %d tries", err, tries)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := Eventually(ctx, func() error { return io.EOF }); err == nil || !cmp.Equal(err.Error(), "context deadline exceeded: EOF") {
			t.Errorf("the error is %v", err)
		}
	})
}

// TestBusy sums up what CPUs are busy with, and neither idling nor waiting.
func TestBusy(t *testing.T) {
	got, err := busy("cpu  10 20 30 4000 500 1 2 0 0 0\ncpu0 1 1 1 1 1 1 1\n")
	if want := 630 * time.Millisecond; err != nil || got != want {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	for _, bad := range []string{"", "cpu0 1 2 3 4 5 6 7", "cpu 1 2 3", "cpu x 2 3 4 5 6 7 8"} {
		if _, err := busy(bad); err == nil {
			t.Errorf("%q passes for the time of all CPUs", bad)
		}
	}
}

// TestBulkOfNothing wants an end although a server takes the connection and sends nothing.
func TestBulkOfNothing(t *testing.T) {
	l, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := (Bulk{Targets: []string{l.Addr().String()}, Streams: 1, Time: time.Millisecond}).Run(ctx); err == nil {
		t.Error("nothing came, and it is no error")
	}
}
