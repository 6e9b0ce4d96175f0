package probe_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/herald-vip/herald/internal/probe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ms = time.Millisecond

// target is a simulated server: the time of an attempt decides its outcome.
type target func(since time.Duration) (latency time.Duration, err error)

// dialer lets time pass as a real dial would and gives up with ctx.
func (tg target) dialer() func(context.Context, string, string) (net.Conn, error) {
	began := time.Now()
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		latency, err := tg(time.Since(began))
		// No timer without latency. The race detector of Go 1.26 crashes when goroutines of one bubble
		// receive from due channel timers at once, since they share one race context.
		if latency > 0 {
			select {
			case <-time.After(latency):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		if err != nil {
			return nil, err
		}
		client, _ := net.Pipe()
		return client, nil
	}
}

func refused() error {
	return &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
}

// up answers after 1 ms except from..to, where down says what happens.
func up(from, dst time.Duration, down target) target {
	return func(since time.Duration) (time.Duration, error) {
		if since < from || since >= dst {
			return ms, nil
		}
		return down(since)
	}
}

func hang(time.Duration) (time.Duration, error)   { return time.Hour, nil }
func refuse(time.Duration) (time.Duration, error) { return 0, refused() }

// runFor runs p for d and returns its result.
func runFor(t *testing.T, p *probe.Prober, d time.Duration) *probe.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	res, err := p.Run(ctx)
	if err != nil {
		t.Fatalf("Run: %v", err)
	}
	return res
}

func TestRun(t *testing.T) {
	type counts = map[probe.Outcome]int
	tests := []struct {
		name    string
		target  target
		want    counts
		outages []probe.Outage
	}{
		{"healthy", up(0, 0, nil), counts{probe.OK: 200}, nil},
		{
			"refused for 50 ms", up(500*ms, 550*ms, refuse),
			counts{probe.OK: 190, probe.Refused: 10},
			[]probe.Outage{{Start: 500 * ms, End: 550 * ms, Failures: counts{probe.Refused: 10}}},
		},
		{
			"silent for 300 ms", up(200*ms, 500*ms, hang),
			counts{probe.OK: 140, probe.Timeout: 60},
			[]probe.Outage{{Start: 200 * ms, End: 500 * ms, Failures: counts{probe.Timeout: 60}}},
		},
		{
			// Refusals come back before the timeouts that began earlier: order is by start.
			"silent, then refused", up(200*ms, 300*ms, func(since time.Duration) (time.Duration, error) {
				if since < 250*ms {
					return hang(since)
				}
				return refuse(since)
			}),
			counts{probe.OK: 180, probe.Timeout: 10, probe.Refused: 10},
			[]probe.Outage{{Start: 200 * ms, End: 300 * ms, Failures: counts{probe.Timeout: 10, probe.Refused: 10}}},
		},
		{
			"slow but in time", func(time.Duration) (time.Duration, error) { return 99 * ms, nil },
			counts{probe.OK: 200}, nil,
		},
		{
			"gone for good", up(900*ms, time.Hour, hang),
			counts{probe.OK: 180, probe.Timeout: 20},
			[]probe.Outage{{Start: 900 * ms, End: 995 * ms, Ongoing: true, Failures: counts{probe.Timeout: 20}}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &probe.Prober{Target: "192.0.2.1:443", Dial: tt.target.dialer()}
				res := runFor(t, p, time.Second-ms)
				if diff := cmp.Diff(tt.want, res.Outcomes); diff != "" {
					t.Errorf("outcomes (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(tt.outages, res.Outages); diff != "" {
					t.Errorf("outages (-want +got):\n%s", diff)
				}
				if res.Late != 0 || res.MaxDelay != 0 {
					t.Errorf("Late = %d, MaxDelay = %v, want none", res.Late, res.MaxDelay)
				}
				if diff := cmp.Diff(probe.Outages(res.Attempts), res.Outages); diff != "" {
					t.Errorf("Outages(Attempts) and Result.Outages differ (-want +got):\n%s", diff)
				}
				if want := time.Second - ms; res.Elapsed < want || res.Elapsed > want+100*ms {
					t.Errorf("Elapsed = %v, want about %v", res.Elapsed, want)
				}
			})
		})
	}
}

func TestOutcomes(t *testing.T) {
	syscallError := func(errno syscall.Errno) error {
		return &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", errno)}
	}
	tests := []struct {
		err  error
		want probe.Outcome
	}{
		{nil, probe.OK},
		{refused(), probe.Refused},
		{os.ErrDeadlineExceeded, probe.Timeout},
		{context.DeadlineExceeded, probe.Timeout},
		{syscallError(syscall.ETIMEDOUT), probe.Timeout},
		{syscallError(syscall.ECONNRESET), probe.Reset},
		{io.EOF, probe.Reset},
		{syscallError(syscall.EHOSTUNREACH), probe.Unreachable},
		{syscallError(syscall.ENETUNREACH), probe.Unreachable},
		{syscallError(syscall.EACCES), probe.Unreachable},
		{syscallError(syscall.EADDRNOTAVAIL), probe.Local},
		{syscallError(syscall.EMFILE), probe.Local},
		{errors.New("anything else"), probe.Other},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.err), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tg := target(func(time.Duration) (time.Duration, error) { return 0, tt.err })
				res := runFor(t, &probe.Prober{Target: "192.0.2.1:443", Dial: tg.dialer()}, ms)
				if diff := cmp.Diff(map[probe.Outcome]int{tt.want: 1}, res.Outcomes); diff != "" {
					t.Errorf("outcomes (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// A prober that does not get to run skips ticks, says so, and sees no outage.
func TestStalledProberSkipsTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stalled := false
		p := &probe.Prober{Target: "192.0.2.1:443", Dial: up(0, 0, nil).dialer()}
		p.OnEvent = func(e probe.Event) {
			if !stalled && e.Attempt.Start >= 100*ms {
				stalled = true
				time.Sleep(302 * ms) // from 101 ms, when the attempt of 100 ms ends, to 403 ms
			}
		}
		res := runFor(t, p, 600*ms-1)
		// 120 ticks; the one of 105 ms fires late, in place of the 59 up to 400 ms.
		want := map[probe.Outcome]int{probe.OK: 120 - 59}
		if diff := cmp.Diff(want, res.Outcomes); diff != "" {
			t.Errorf("outcomes (-want +got):\n%s", diff)
		}
		if res.Late != 59 {
			t.Errorf("Late = %d, want 59", res.Late)
		}
		if want := 298 * ms; res.MaxDelay != want {
			t.Errorf("MaxDelay = %v, want %v", res.MaxDelay, want)
		}
		for i, a := range res.Attempts[1:] {
			if gap := a.Start - res.Attempts[i].Start; gap < 2*ms {
				t.Errorf("attempts at %v and %v are bunched", res.Attempts[i].Start, a.Start)
			}
		}
	})
}

// Silence that the prober slept through proves nothing.
func TestTimeoutDuringStallIsInconclusive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tg := target(func(since time.Duration) (time.Duration, error) {
			if since == 100*ms {
				return hang(since)
			}
			return 8 * ms, nil
		})
		p := &probe.Prober{Target: "192.0.2.1:443", Dial: tg.dialer()}
		p.OnEvent = func(e probe.Event) {
			if e.Attempt.Start == 95*ms {
				time.Sleep(80 * ms) // from 103 ms on, of the 100 ms that the attempt of 100 ms waits
			}
		}
		res := runFor(t, p, time.Second)
		if res.Failed != 0 || len(res.Outages) != 0 {
			t.Errorf("%d failed, outages %v, want none", res.Failed, res.Outages)
		}
		if res.Outcomes[probe.Stalled] != 1 {
			t.Errorf("outcomes %v, want one stalled: the attempt of 100 ms", res.Outcomes)
		}
	})
}

// A verdict that comes long after the timeout was not watched for either.
func TestLateTimeoutIsInconclusive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &probe.Prober{
			Target:   "192.0.2.1:443",
			Interval: time.Second,
			Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-ctx.Done()
				time.Sleep(30 * ms)
				return nil, ctx.Err()
			},
		}
		res := runFor(t, p, time.Second-ms)
		if diff := cmp.Diff(map[probe.Outcome]int{probe.Stalled: 1}, res.Outcomes); diff != "" {
			t.Errorf("outcomes (-want +got):\n%s", diff)
		}
	})
}

// However slow the attempts are to end, there are never more than a few under way.
func TestAttemptsUnderWayAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &probe.Prober{
			Target: "192.0.2.1:443",
			Dial: func(context.Context, string, string) (net.Conn, error) {
				time.Sleep(time.Minute) // as if nothing else were scheduled
				return nil, os.ErrDeadlineExceeded
			},
		}
		res := runFor(t, p, time.Second-ms)
		if res.Total != 56 || res.Late != 200-56 {
			t.Errorf("%d attempts, %d ticks late, want 56 and 144", res.Total, res.Late)
		}
	})
}

func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			starts  []time.Duration
			outages []probe.Outage
		)
		p := &probe.Prober{Target: "192.0.2.1:443", Dial: up(50*ms, 60*ms, hang).dialer()}
		p.OnEvent = func(e probe.Event) {
			starts = append(starts, e.Attempt.Start)
			if e.Outage != nil {
				outages = append(outages, *e.Outage)
			}
		}
		runFor(t, p, 200*ms-ms)
		for i, start := range starts {
			if want := time.Duration(i) * 5 * ms; start != want {
				t.Fatalf("event %d is of the attempt at %v, want %v", i, start, want)
			}
		}
		want := []probe.Outage{
			{Start: 50 * ms, End: 50 * ms, Ongoing: true, Failures: map[probe.Outcome]int{probe.Timeout: 1}},
			{Start: 50 * ms, End: 60 * ms, Failures: map[probe.Outcome]int{probe.Timeout: 2}},
		}
		if diff := cmp.Diff(want, outages); diff != "" {
			t.Errorf("outages (-want +got):\n%s", diff)
		}
	})
}

func TestSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &probe.Prober{Target: "192.0.2.1:443", Dial: up(100*ms, time.Hour, refuse).dialer()}
		if got := p.Snapshot().Total; got != 0 {
			t.Errorf("Total before Run = %d, want 0", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { _, err := p.Run(ctx); done <- err }()
		time.Sleep(199 * ms)
		got := p.Snapshot()
		if got.Total != 40 || got.Failed != 20 || got.OutageCount != 1 || got.Attempts != nil {
			t.Errorf("snapshot %+v, want 40 attempts, 20 failed, 1 outage, no list", got)
		}
		if want := 95 * ms; got.Longest == nil || !got.Longest.Ongoing || got.Downtime != want {
			t.Errorf("longest %v, downtime %v, want ongoing, %v", got.Longest, got.Downtime, want)
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// Half an hour at the default interval, with a target that flaps throughout.
func TestLongRunIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flap := target(func(since time.Duration) (time.Duration, error) {
			if since/(100*ms)%2 == 1 {
				return 0, refused()
			}
			return ms, nil
		})
		p := &probe.Prober{Target: "192.0.2.1:443", Keep: 500, Dial: flap.dialer()}
		res := runFor(t, p, 30*time.Minute-ms)
		if res.Total != 360_000 || res.Failed != 180_000 || res.OutageCount != 9000 || res.Downtime != 15*time.Minute-5*ms {
			t.Errorf("total %d, failed %d, outages %d, downtime %v", res.Total, res.Failed, res.OutageCount, res.Downtime)
		}
		if len(res.Attempts) != 500 || len(res.Outages) != 1001 {
			t.Errorf("%d attempts and %d outages listed, want 500 and 1000 besides the ongoing one", len(res.Attempts), len(res.Outages))
		}
		newest := probe.Outages(res.Attempts)
		if diff := cmp.Diff(newest[1:], res.Outages[len(res.Outages)-len(newest)+1:]); diff != "" {
			t.Errorf("newest attempts and newest outages disagree (-attempts +outages):\n%s", diff)
		}
	})
}

func TestRunRefuses(t *testing.T) {
	for name, p := range map[string]*probe.Prober{
		"no port":           {Target: "192.0.2.1"},
		"port zero":         {Target: "192.0.2.1:0"},
		"unknown port":      {Target: "192.0.2.1:no-such-service"},
		"wrong family":      {Target: "192.0.2.1:80", Source: netipAddr("2001:db8::1")},
		"negative timeout":  {Target: "192.0.2.1:80", Timeout: -1},
		"negative interval": {Target: "192.0.2.1:80", Interval: -1},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := p.Run(t.Context()); err == nil {
				t.Error("Run returned no error")
			}
		})
	}
}
