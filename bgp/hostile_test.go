package bgp_test

import (
	"context"
	"fmt"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"go.uber.org/goleak"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/testenv/hostile"
	"github.com/herald-vip/herald/testenv/wait"
)

// battle is a speaker between a healthy router and a hostile one.
type battle struct {
	server  *bgp.Server
	healthy *router
	hostile hostile.Peer
	before  goleak.Option // goroutines from before the speaker
}

// The hostile peer opens the sessions itself, so that it does not wait for the speaker's attempts.
const (
	hostileAddress = "127.0.0.66"
	listenPort     = 11791
)

func startBattle(t *testing.T, attributes v1alpha1.Attributes) *battle {
	t.Helper()
	b := &battle{healthy: startRouter(t, "127.0.0.2", 64500, 64512), before: goleak.IgnoreCurrent()}
	// A tenth of the default: the race detector slows GoBGP down that much, and more.
	b.server = bgp.New(slog.New(slog.DiscardHandler), bgp.Options{MaxRoutes: 1000})
	speaker := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), listenPort)
	address := netip.MustParseAddr(hostileAddress)
	dial := hostile.Dial(address, speaker)
	b.hostile = hostile.Peer{ASN: 64501, RouterID: address, Seed: 1, Connect: func(ctx context.Context) (net.Conn, error) {
		b.server.Retry(hostileAddress)
		return dial(ctx)
	}}
	c := config(b.healthy.peer(64500), v1alpha1.Peer{
		Address: address, ASN: 64501, Port: 1, LocalAddress: speaker.Addr(),
		HoldTime: metav1.Duration{Duration: 3 * time.Second}, Families: []v1alpha1.Family{v1alpha1.IPv4, v1alpha1.IPv6}, Attributes: attributes,
	})
	c.ListenPort, c.ListenAddresses = listenPort, []netip.Addr{speaker.Addr()}
	must(t, b.server.Apply(t.Context(), c))
	must(t, b.server.Announce(bgp.Route{Prefix: prefix(1)}))
	wait.Until(t, "the healthy router has the route", func() bool {
		got, _ := b.healthy.history()
		return slices.Equal(got, []string{"+10.99.0.1/32"})
	})
	return b
}

// end closes the speaker and checks that it leaves no goroutine.
func (b *battle) end(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	must(t, b.server.Close(ctx, "test is over"))
	wait.Until(t, "the healthy router sees the session fall", func() bool { _, downs := b.healthy.history(); return downs > 0 })
	goleak.VerifyNone(t, b.before)
}

// attack runs an attack until its end or the limit.
func (b *battle) attack(t *testing.T, name string, limit time.Duration) (done <-chan struct{}) {
	t.Helper()
	a, err := hostile.Find(name)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tally := make(map[string]int)
		start := time.Now()
		if err := b.hostile.Run(ctx, a, func(o hostile.Outcome) { tally[o.String()]++ }); err != nil {
			t.Error(err)
		}
		t.Logf("%v: %v", time.Since(start).Round(time.Millisecond), tally)
	}()
	return ended
}

// flap announces and withdraws a route until done, at least twice, and waits until the healthy router has seen every
// change.
func (b *battle) flap(t *testing.T, done <-chan struct{}) {
	t.Helper()
	var worst time.Duration
	for round := 0; ; round++ {
		route := bgp.Route{Prefix: prefix(200)}
		for _, change := range []struct {
			want string
			make func() error
		}{
			{"+" + route.Prefix.String(), func() error { return b.server.Announce(route) }},
			{"-" + route.Prefix.String(), func() error { return b.server.Withdraw(route.Prefix) }},
		} {
			before, _ := b.healthy.history()
			start := time.Now()
			must(t, change.make())
			wait.Until(t, "the healthy router sees "+change.want, func() bool {
				got, _ := b.healthy.history()
				return slices.Contains(got[len(before):], change.want)
			})
			worst = max(worst, time.Since(start))
		}
		select {
		case <-done:
			if round > 0 {
				t.Logf("%d rounds, the slowest change took %v", round, worst)
				return
			}
		default:
		}
	}
}

// peace makes the hostile peer behave until its session is up, and then ends it.
func (b *battle) peace(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		for ctx.Err() == nil { // an attempt may come too early
			if err := b.hostile.Run(ctx, hostile.Behaved, func(hostile.Outcome) {}); err != nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	wait.Until(t, "the session is up when the peer behaves", func() bool {
		return session(b.server, hostileAddress).State == bgp.Established
	})
	cancel()
	must(t, <-ended)
}

// During every attack the speaker survives, and the healthy router keeps its session and gets every change. The peer
// gets a session again as soon as it behaves.
func TestHostilePeer(t *testing.T) {
	b := startBattle(t, v1alpha1.Attributes{})
	defer b.end(t)
	reasons := map[string]string{ // of attacks that exceed a limit
		"refresh-flood":  "asked for all routes again",
		"route-flood":    "sent more than 1000 routes",
		"hold-time-zero": "hold time of 0",
	}
	for _, a := range hostile.Attacks() {
		t.Run(a.Name, func(t *testing.T) {
			limit := 2 * time.Second
			if a.Name == "mutations" {
				limit = 40 * time.Second // enough for all 10,000 without the race detector
			}
			reason := reasons[a.Name]
			if reason != "" {
				limit = 10 * time.Second // a busy machine floods slowly
			}
			done := b.attack(t, a.Name, limit)
			wait.Until(t, "the reason says "+reason, func() bool {
				return strings.Contains(session(b.server, hostileAddress).Reason, reason)
			})
			b.flap(t, done)
			if _, downs := b.healthy.history(); downs != 0 {
				t.Errorf("the healthy router's session fell %d times", downs)
			}
			x := session(b.server, hostileAddress)
			if i := strings.IndexFunc(x.Reason, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 || len(x.Reason) > 512 {
				t.Errorf("%s: the reason is too long or not printable: %q", x.State, x.Reason)
			}
			t.Logf("%s, %d drops: %s", x.State, x.Drops, fmt.Sprint(x.Reason))
			b.peace(t)
		})
	}
}

// The speaker gives up a peer that does not read after the hold time, and drops its queued messages. Meanwhile the
// healthy router gets all routes.
func TestPeerThatDoesNotRead(t *testing.T) {
	// Large routes fill the connection's buffers soon.
	var bulk v1alpha1.Attributes
	for i := range uint32(300) {
		bulk.LargeCommunities = append(bulk.LargeCommunities, v1alpha1.LargeCommunity{Global: 64512, Local1: i})
	}
	b := startBattle(t, bulk)
	defer b.end(t)
	before := measure(t)
	drops := session(b.server, hostileAddress).Drops
	done := b.attack(t, "deaf", time.Minute)
	wait.Until(t, "its session is up", func() bool { return session(b.server, hostileAddress).State == bgp.Established })

	var routes []bgp.Route
	var prefixes []netip.Prefix
	for i := range 1000 {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 98, byte(i >> 8), byte(i)}), 32)
		// Different attributes force one UPDATE per route.
		routes = append(routes, bgp.Route{Prefix: p, Attributes: v1alpha1.Attributes{Communities: []v1alpha1.Community{v1alpha1.Community(i)}}})
		prefixes = append(prefixes, p)
	}
	rounds := 0
	for session(b.server, hostileAddress).Drops == drops {
		b.healthy.forget()
		must(t, b.server.Announce(routes...))
		wait.Until(t, "the healthy router gets all routes", func() bool { got, _ := b.healthy.history(); return len(got) == len(routes) })
		must(t, b.server.Withdraw(prefixes...))
		wait.Until(t, "the healthy router gets all withdrawals", func() bool { got, _ := b.healthy.history(); return len(got) == 2*len(routes) })
		rounds++
	}
	<-done
	if got := session(b.server, hostileAddress).Reason; !strings.Contains(got, "does not read") {
		t.Errorf("the reason is %q", got)
	}
	if _, downs := b.healthy.history(); downs != 0 {
		t.Errorf("the healthy router's session fell %d times", downs)
	}
	wait.Until(t, "memory use is back to its initial level", func() bool { return measure(t).heap <= before.heap+8<<20 })
	t.Logf("%d rounds; before %+v, after %+v", rounds, before, measure(t))
}

// Two hundred sessions that come and go leave nothing behind.
func TestFlapsLeaveNothing(t *testing.T) {
	b := startBattle(t, v1alpha1.Attributes{})
	defer b.end(t)
	flap := func() {
		t.Helper()
		drops := session(b.server, hostileAddress).Drops
		<-b.attack(t, "flaps", 5*time.Minute)                              // the attack ends by itself
		if n := session(b.server, hostileAddress).Drops - drops; n < 190 { // some fall before they are counted
			t.Fatalf("the session fell %d times, want 200", n)
		}
	}
	const leeway, heapLeeway = 5, 2 << 20
	flap() // the first run allocates everything permanent
	before := measure(t)
	flap()
	var now footprint
	defer func() { t.Logf("before %+v, after %+v", before, now) }()
	wait.Until(t, "resource use is back to its initial level", func() bool {
		now = measure(t)
		return now.goroutines <= before.goroutines+leeway && now.files <= before.files+2 && now.heap <= before.heap+heapLeeway
	})
}

type footprint struct {
	goroutines, files int
	heap              uint64
}

func measure(t *testing.T) footprint {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return footprint{goroutines: runtime.NumGoroutine(), files: len(files), heap: m.HeapAlloc}
}
