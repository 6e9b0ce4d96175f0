package bgp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/mdlayher/ndp"
	"golang.org/x/net/ipv6"

	"github.com/herald-vip/herald/internal/wake"
)

// An unnumbered peer is the router at the far end of a link. Both ends learn the other's link-local address
// from router advertisements (RFC 4861 section 4.2). FRR stays Idle until it receives one, and GoBGP sends none.

const (
	advertiseEvery = 5 * time.Second
	relisten       = time.Second
)

// discover keeps p's address up to date until p is removed.
func (s *Server) discover(p *peer) {
	ctx, cancel := context.WithCancel(s.ctx)
	p.stopDiscovery = cancel
	link := p.Interface
	s.wg.Go(func() {
		for ctx.Err() == nil {
			s.explainWaiting(link, fmt.Sprintf("no router advertisement received on %s yet", link))
			err := discoverOn(ctx, link, func(addr netip.Addr) { s.discovered(ctx, link, addr) })
			if err != nil {
				s.explainWaiting(link, fmt.Sprintf("cannot look for the router on %s: %v", link, err))
			}
			wake.Pause(ctx, relisten)
		}
	})
}

// discovered sets the address of the unnumbered peer of link. An established session stays: on a link with
// several routers each advertisement would end it.
func (s *Server) discovered(ctx context.Context, link string, addr netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peers[link]
	if p == nil || ctx.Err() != nil || p.addr == addr || p.state == Established {
		return
	}
	s.drop(p)
	p.addr = addr
	p.since = time.Now()
	p.examineSoon()
	s.log.Info("unnumbered peer found", "peer", link, "address", addr)
	s.export()
	s.add(p)
}

// explainWaiting sets the reason why an unnumbered peer has not been found.
func (s *Server) explainWaiting(link, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.peers[link]; p != nil && p.state == Waiting {
		p.reason = reason
	}
}

// discoverOn advertises this node on link and reports each router that advertises itself there. It returns an
// error when the link cannot be used, and nil when ctx is done.
func discoverOn(ctx context.Context, link string, found func(netip.Addr)) error {
	ifi, err := net.InterfaceByName(link)
	if err != nil {
		return err
	}
	conn, _, err := ndp.Listen(ifi, ndp.LinkLocal)
	if err != nil {
		return fmt.Errorf("listen for router advertisements: %w", err)
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	defer conn.Close()

	allNodes, allRouters := netip.IPv6LinkLocalAllNodes(), netip.IPv6LinkLocalAllRouters()
	var advertisements ipv6.ICMPFilter
	advertisements.SetAll(true)
	advertisements.Accept(ipv6.ICMPTypeRouterAdvertisement)
	err = errors.Join(conn.JoinGroup(allNodes), conn.SetControlMessage(ipv6.FlagHopLimit, true), conn.SetICMPFilter(&advertisements))
	if err != nil {
		return fmt.Errorf("set up the socket for router advertisements: %w", err)
	}
	// Without a lifetime the advertisement does not make this node a default router.
	self := &ndp.RouterAdvertisement{Options: []ndp.Option{
		&ndp.LinkLayerAddress{Direction: ndp.Source, Addr: ifi.HardwareAddr},
	}}
	if err := conn.WriteTo(&ndp.RouterSolicitation{}, nil, allRouters); err != nil {
		return fmt.Errorf("send a router solicitation: %w", err)
	}
	for {
		if err := conn.WriteTo(self, nil, allNodes); err != nil {
			return fmt.Errorf("send a router advertisement: %w", err)
		}
		if err := listenUntil(conn, time.Now().Add(advertiseEvery), link, found); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
}

// listenUntil reports advertising routers until the deadline.
func listenUntil(conn *ndp.Conn, deadline time.Time, link string, found func(netip.Addr)) error {
	if err := conn.SetReadDeadline(deadline); err != nil {
		return err
	}
	for {
		m, control, from, err := conn.ReadFrom()
		var network net.Error
		switch {
		case errors.As(err, &network) && network.Timeout():
			return nil
		case errors.As(err, &network):
			return err
		case err != nil || control == nil:
			continue // a malformed message: not this node's problem
		}
		// RFC 4861 section 6.1.2: from a link-local address, and not forwarded.
		if _, ok := m.(*ndp.RouterAdvertisement); !ok || control.HopLimit != ndp.HopLimit || !from.IsLinkLocalUnicast() {
			continue
		}
		found(from.WithZone(link))
	}
}
