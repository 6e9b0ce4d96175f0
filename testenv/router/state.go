package router

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"
)

// State is what a router knows at one moment.
type State struct {
	ASN      uint32     `json:"asn"`
	RouterID netip.Addr `json:"routerID"`
	// Sessions are those of all configured neighbours, in the order of their addresses.
	Sessions []Session `json:"sessions"`
	// Routes are those in use, in the order of their prefixes.
	Routes []Route `json:"routes"`
}

// Session is the BGP session with one neighbour.
type Session struct {
	Neighbor netip.Addr `json:"neighbor"`
	ASN      uint32     `json:"asn"`
	// Up is set while the session is established.
	Up bool `json:"up"`
	// Since is when Up changed last, at first when the router started.
	Since time.Time `json:"since"`
	// Reason is why the session went down.
	Reason string `json:"reason,omitempty"`
}

// Route is one prefix and the next hops that share its load.
type Route struct {
	Prefix   netip.Prefix `json:"prefix"`
	NextHops []netip.Addr `json:"nextHops"`
	// Since is when the next hops changed last.
	Since time.Time `json:"since"`
	// Problem is why the kernel's route is not so, if it is not.
	Problem string `json:"problem,omitempty"`
}

// Watch connects to the socket of a router and yields its state, at once and
// after each change; changes in quick succession may be seen as one. It ends
// after the first error, the end of ctx and of the router among them.
func Watch(ctx context.Context, socket string) iter.Seq2[*State, error] {
	return func(yield func(*State, error) bool) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "unix", socket)
		if err != nil {
			yield(nil, fmt.Errorf("connect to the router: %w", err))
			return
		}
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { conn.Close() })()
		for dec := json.NewDecoder(conn); ; {
			s := new(State)
			err := dec.Decode(s)
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			if err != nil {
				yield(nil, fmt.Errorf("read the router's state: %w", err))
				return
			}
			if !yield(s, nil) {
				return
			}
		}
	}
}

// state returns the state and a channel that is closed when it changes.
func (r *Router) state() (*State, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &State{
		ASN:      r.Config.ASN,
		RouterID: r.Config.RouterID,
		Sessions: []Session{},
		Routes:   []Route{},
	}
	for _, addr := range slices.SortedFunc(maps.Keys(r.sessions), netip.Addr.Compare) {
		s.Sessions = append(s.Sessions, *r.sessions[addr])
	}
	for _, prefix := range slices.SortedFunc(maps.Keys(r.want), netip.Prefix.Compare) {
		s.Routes = append(s.Routes, Route{
			Prefix:   prefix,
			NextHops: slices.Clone(r.want[prefix]),
			Since:    r.since[prefix],
			Problem:  r.problems[prefix],
		})
	}
	return s, r.changed
}

// notify wakes up everybody who watches the state. The caller holds r.mu.
func (r *Router) notify() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// listenState listens on the Unix socket at path, in place of one that a
// router left behind when it was killed.
func listenState(path string) (net.Listener, error) {
	if conn, err := net.Dial("unix", path); err == nil {
		conn.Close()
		return nil, fmt.Errorf("state socket %s: another router listens there", path)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == os.ModeSocket {
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("state socket: %w", err)
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("state socket: %w", err)
	}
	return l, nil
}

// serveState tells all who connect to l the state until ctx ends.
func (r *Router) serveState(ctx context.Context, l net.Listener) {
	defer context.AfterFunc(ctx, func() { l.Close() })()
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() == nil {
				r.Log.Error("state socket is closed", "err", err)
			}
			return
		}
		wg.Go(func() { r.tell(ctx, conn) })
	}
}

// tell writes the state to conn, at once and after each change, until ctx ends
// or the other end hangs up.
func (r *Router) tell(ctx context.Context, conn net.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		// Nothing is expected: this is to see the end of the connection.
		_, _ = io.Copy(io.Discard, conn)
		cancel()
	})
	defer conn.Close()
	for enc := json.NewEncoder(conn); ctx.Err() == nil; {
		s, changed := r.state()
		if enc.Encode(s) != nil {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}
