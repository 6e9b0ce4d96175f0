package router_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"

	"github.com/herald-vip/herald/testenv/router"
)

// roleVar makes the test binary play another part: it is run once more in a
// network namespace of its own, because a BGP server dials and listens from
// whatever thread it happens to run on.
const roleVar = "HERALD_ROUTER_TEST_ROLE"

func TestMain(m *testing.M) {
	role, args, _ := strings.Cut(os.Getenv(roleVar), " ")
	var err error
	switch role {
	case "":
		os.Exit(m.Run())
	case "router":
		err = runRouter(args)
	case "speaker":
		err = runSpeaker(strings.Fields(args))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, role+":", err)
		os.Exit(1)
	}
}

// runRouter runs a router by the configuration file and socket in args.
func runRouter(args string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	config, socket, _ := strings.Cut(args, " ")
	f, err := os.Open(config)
	if err != nil {
		return err
	}
	cfg, err := router.ParseConfig(config, f)
	f.Close()
	if err != nil {
		return err
	}
	r := &router.Router{Config: cfg, Socket: socket, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	return r.Run(ctx)
}

// runSpeaker announces and withdraws routes as told on standard input, until
// that ends, each time once its session is up. Each line is answered with a number: the time at which it was
// acted on, or for the last kind how many routes were learned.
//
//	announce PREFIX NEXTHOP [graceful-shutdown]
//	withdraw PREFIX
//	learned
func runSpeaker(args []string) error {
	ctx := context.Background()
	asn, id, peer, peerASN, password := args[0], args[1], args[2], args[3], strings.Join(args[4:], "")
	s := server.NewBgpServer()
	go s.Serve()
	defer s.Stop()
	err := s.StartBgp(ctx, &api.StartBgpRequest{Global: &api.Global{Asn: uint32(atoi(asn)), RouterId: id, ListenPort: -1}})
	if err != nil {
		return err
	}
	families := []*api.AfiSafi{
		{Config: &api.AfiSafiConfig{Enabled: true, Family: &api.Family{Afi: api.Family_AFI_IP, Safi: api.Family_SAFI_UNICAST}}},
		{Config: &api.AfiSafiConfig{Enabled: true, Family: &api.Family{Afi: api.Family_AFI_IP6, Safi: api.Family_SAFI_UNICAST}}},
	}
	err = s.AddPeer(ctx, &api.AddPeerRequest{Peer: &api.Peer{
		Conf:     &api.PeerConf{NeighborAddress: peer, PeerAsn: uint32(atoi(peerASN)), AuthPassword: password},
		Timers:   &api.Timers{Config: &api.TimersConfig{HoldTime: 90, KeepaliveInterval: 30, ConnectRetry: 1, IdleHoldTimeAfterReset: 1}},
		AfiSafis: families,
	}})
	if err != nil {
		return err
	}
	announced := make(map[string]*apiutil.Path)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if err := awaitSession(ctx, s); err != nil {
			return err
		}
		answer := time.Now().UnixNano()
		switch words[0] {
		case "announce":
			path, err := newPath(words[1], words[2], words[3:])
			if err != nil {
				return err
			}
			announced[words[1]] = path
			if _, err := s.AddPath(apiutil.AddPathRequest{Paths: []*apiutil.Path{path}}); err != nil {
				return err
			}
		case "withdraw":
			if err := s.DeletePath(apiutil.DeletePathRequest{Paths: []*apiutil.Path{announced[words[1]]}}); err != nil {
				return err
			}
		case "learned":
			answer = 0
			for _, f := range []bgp.Family{bgp.RF_IPv4_UC, bgp.RF_IPv6_UC} {
				count := func(bgp.NLRI, []*apiutil.Path) { answer++ }
				if err := s.ListPath(apiutil.ListPathRequest{TableType: api.TableType_TABLE_TYPE_ADJ_IN, Name: peer, Family: f}, count); err != nil {
					return err
				}
			}
		}
		fmt.Println(answer)
	}
	return lines.Err()
}

// awaitSession waits until GoBGP itself calls the session established. What is
// added while it is still about to, after the first table was sent, it never
// sends.
func awaitSession(ctx context.Context, s *server.BgpServer) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		up := false
		err := s.ListPeer(ctx, &api.ListPeerRequest{}, func(p *api.Peer) {
			up = p.State.SessionState == api.PeerState_SESSION_STATE_ESTABLISHED
		})
		if up || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("session: %w", ctx.Err())
		}
	}
}

func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

func newPath(prefix, nextHop string, communities []string) (*apiutil.Path, error) {
	nlri, err := bgp.NewIPAddrPrefix(netip.MustParsePrefix(prefix))
	if err != nil {
		return nil, err
	}
	family := bgp.RF_IPv4_UC
	attrs := []bgp.PathAttributeInterface{bgp.NewPathAttributeOrigin(0)}
	if nlri.Prefix.Addr().Is4() {
		hop, err := bgp.NewPathAttributeNextHop(netip.MustParseAddr(nextHop))
		if err != nil {
			return nil, err
		}
		attrs = append(attrs, hop)
	} else {
		family = bgp.RF_IPv6_UC
		reach, err := bgp.NewPathAttributeMpReachNLRI(family, []bgp.PathNLRI{{NLRI: nlri}}, netip.MustParseAddr(nextHop))
		if err != nil {
			return nil, err
		}
		attrs = append(attrs, reach)
	}
	if slices.Contains(communities, "graceful-shutdown") {
		attrs = append(attrs, bgp.NewPathAttributeCommunities([]uint32{0xffff0000}))
	}
	return &apiutil.Path{Family: family, Nlri: nlri, Attrs: attrs}, nil
}

// speaker is the near end of a runSpeaker.
type speaker struct {
	in  io.Writer
	out *bufio.Scanner
}

// tell gives the speaker a line and returns when it acted on it.
func (s *speaker) tell(t testing.TB, format string, args ...any) time.Time {
	t.Helper()
	return time.Unix(0, s.ask(t, format, args...))
}

// ask gives the speaker a line and returns its answer.
func (s *speaker) ask(t testing.TB, format string, args ...any) int64 {
	t.Helper()
	if _, err := fmt.Fprintf(s.in, format+"\n", args...); err != nil {
		t.Fatalf("speaker: %v", err)
	}
	if !s.out.Scan() {
		t.Fatalf("speaker ended: %v", s.out.Err())
	}
	n, err := strconv.ParseInt(s.out.Text(), 10, 64)
	if err != nil {
		t.Fatalf("speaker said %q", s.out.Text())
	}
	return n
}
