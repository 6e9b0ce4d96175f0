package bgp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	gobgp "github.com/osrg/gobgp/v4/pkg/server"
	"google.golang.org/protobuf/proto"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/bgp/bfd"
)

// ErrRestart is wrapped by errors of [Server.Apply] if a change needs a new process:
// GoBGP cannot stop and start again within one.
var ErrRestart = errors.New("restart herald to apply it")

// ErrClosed is the error of [Server.Apply] after [Server.Close].
var ErrClosed = errors.New("bgp: closed")

// New returns a server without peers and routes. Call [Server.Close] to stop it.
func New(log *slog.Logger, options Options) *Server {
	options.MaxRoutes = cmp.Or(options.MaxRoutes, defaultMaxRoutes)
	ctx, cancel := context.WithCancel(context.Background())
	ended := &reasons{said: make(map[netip.Addr]string)}
	s := &Server{
		log:     log,
		options: options,
		gobgp:   gobgp.NewBgpServer(gobgp.LoggerOption(slog.New(reasonHandler{ended, log.Handler(), netip.Addr{}}), nil)),
		reasons: ended,
		ctx:     ctx,
		cancel:  cancel,
		events:  make(chan apiutil.PeerState),
		peers:   make(map[string]*peer),
		numbers: make(numbers),
		routes:  make(map[netip.Prefix]Route),
	}
	s.bfd = bfd.NewServer(log, s.pathChanged)
	if s.accepted = acceptedBy(s.gobgp); s.accepted != nil {
		*s.accepted = make(chan net.Conn, 1) // replaced once GoBGP has a listener
	}
	s.wg.Go(s.gobgp.Serve)
	// GoBGP answers once it serves. If it were stopped before, it would never end.
	_, _ = s.gobgp.GetBgp(ctx, &api.GetBgpRequest{})
	s.wg.Go(s.run)
	return s
}

// Apply puts the configuration c in force. It touches only differences: sessions of unchanged peers stay up, and a
// change of attributes re-sends routes without ending a session. An unreachable peer is not an error; its
// [Session] has the reason. After [Server.Close] the error is [ErrClosed].
func (s *Server) Apply(ctx context.Context, c Config) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return ErrClosed
	}
	if !s.started {
		if err := s.start(ctx, c); err != nil {
			return err
		}
	} else if field := fixedFieldChanged(s.config, c); field != "" {
		return fmt.Errorf("bgp: %s cannot change while running: %w", field, ErrRestart)
	}
	before := s.config
	s.config = c
	s.started = true

	want := make(map[string]v1alpha1.Peer, len(c.Peers))
	for _, p := range c.Peers {
		want[p.Name()] = p
	}
	for name, p := range s.peers {
		if _, ok := want[name]; !ok {
			s.drop(p)
			if p.stopDiscovery != nil {
				p.stopDiscovery()
			}
			delete(s.peers, name)
			s.log.Info("peer removed", "peer", name)
		}
	}
	for name, conf := range want {
		p, ok := s.peers[name]
		switch {
		case !ok:
			p = newPeer(conf, s.numbers.learn(name))
			s.peers[name] = p
			if conf.Interface != "" {
				s.discover(p)
			}
		case !sameSession(encodePeer(before, p.Peer, p.addr), encodePeer(c, conf, p.addr), p.state == Established):
			s.drop(p)
		case conf.BFD == nil:
			p.wait = wait{}
		}
		p.Peer = conf
	}
	s.export()
	for _, p := range s.peers {
		s.add(p)
	}
	s.watchPaths()
	return nil
}

// sameSession reports whether a peer's session can stay, given its old and new settings for GoBGP. An established one has no
// use for ConnectRetry: its successor gets the new value.
func sameSession(old, new *api.Peer, established bool) bool {
	if established {
		old.Timers.Config.ConnectRetry = new.Timers.Config.ConnectRetry
	}
	return proto.Equal(old, new)
}

// start starts GoBGP with its policies: import no routes, export by [encodePolicies].
func (s *Server) start(ctx context.Context, c Config) error {
	if err := s.gobgp.StartBgp(ctx, &api.StartBgpRequest{Global: encodeGlobal(c)}); err != nil {
		return fmt.Errorf("bgp: start: %w", err)
	}
	if err := s.gobgp.SetPolicies(ctx, encodePolicies(c.ASN, nil)); err != nil {
		return fmt.Errorf("bgp: set policies: %w", err)
	}
	for _, a := range encodeAssignments() {
		if err := s.gobgp.SetPolicyAssignment(ctx, &api.SetPolicyAssignmentRequest{Assignment: a}); err != nil {
			return fmt.Errorf("bgp: assign policies: %w", err)
		}
	}
	return s.watch()
}

// fixedFieldChanged returns the first differing field that GoBGP accepts only at its start; empty if there is none.
func fixedFieldChanged(old, new Config) string {
	switch {
	case old.ASN != new.ASN:
		return "asn"
	case old.RouterID != new.RouterID:
		return "routerID"
	case old.ListenPort != new.ListenPort || !slices.Equal(old.ListenAddresses, new.ListenAddresses):
		return "listen"
	}
	return ""
}

// Close ends every session with the reason message (RFC 9003), which withdraws all routes, and stops the server. It
// returns when all goroutines have ended, or with ctx's error if the sessions did not end in time.
func (s *Server) Close(ctx context.Context, message string) error {
	s.mu.Lock()
	s.closing = true
	closed := make(map[string]<-chan struct{})
	for name, p := range s.peers {
		if p.state != Established {
			continue
		}
		p.closed = make(chan struct{})
		closed[name] = p.closed
		// An error means that the peer has gone, which is fine.
		_ = s.gobgp.DisablePeer(ctx, &api.DisablePeerRequest{Address: p.addr.String(), Communication: message})
	}
	s.mu.Unlock()

	var err error
	for name, done := range closed {
		select {
		case <-done:
		case <-ctx.Done():
			err = fmt.Errorf("bgp: peer %s did not close in time: %w", name, ctx.Err())
		}
	}
	// End BGP first: to a peer the end of BFD alone is a failure.
	if failed := s.bfd.Close(ctx); failed != nil {
		err = errors.Join(err, fmt.Errorf("bgp: close BFD: %w", failed))
	}
	s.cancel()
	s.gobgp.Stop()
	s.wg.Wait()
	return err
}
