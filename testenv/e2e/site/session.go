//go:build e2e

package site

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/stub"
)

// PlainRouter is r1 with a session to s.
const PlainRouter = `
 neighbor 10.0.1.1 remote-as 64512
 neighbor 10.0.1.1 timers connect 1`

// BothPeers is a configuration of two plain peers.
var BothPeers = SpeakerConf([]string{VIP4}, "peers:\n- {address: 10.0.1.254, asn: 64500}\n- {address: 10.0.2.254, asn: 64500, holdTime: 9s}")

// The VIPs of most tests.
const (
	VIP4 = "10.99.0.10"
	VIP6 = "fd00:99::10"
)

// Session is the lab of e2e-session.clab.yml: a speaker that checks a stub apiserver,
// and the routers around it.
type Session struct {
	*lab.Lab
	Speaker
	// Config is the folder that s has as /etc/herald.
	Config string
	Readyz *stub.Server
	// ApiserverDies ends the server of Readyz, like a SIGKILL.
	ApiserverDies func()
}

// Files are the configurations of a site by their path in the topology's folder;
// others stay unchanged.
type Files map[string]string

// NewSession makes a site with a healthy apiserver. It boots no node.
func NewSession(t *testing.T, own Files) *Session {
	t.Helper()
	dir := t.TempDir()
	Must(t, os.CopyFS(dir, os.DirFS("../../topologies/e2e-session")))
	for name, content := range own {
		Must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
	s := &Session{
		Lab:    StartLab(t, "e2e-session.clab.yml", map[string]string{"SESSION_DIR": dir}),
		Config: filepath.Join(dir, "herald"),
		Readyz: stub.APIServer("s"),
	}
	s.Speaker = Speaker{s.Node("s")}
	s.ApiserverStarts(t)
	return s
}

// ApiserverStarts serves Readyz, at first and after ApiserverDies.
func (s *Session) ApiserverStarts(t *testing.T) {
	t.Helper()
	s.ApiserverDies = Serve(t, s.Node("s"), ":6443", s.Readyz)
}

// Serve runs a stub server in the node's network until stop or the end of the test.
func Serve(t *testing.T, n *lab.Node, address string, server *stub.Server) (stop func()) {
	t.Helper()
	return ServeTLS(t, n, address, server, nil)
}

// ServeTLS is Serve over TLS, if config is set.
func ServeTLS(t *testing.T, n *lab.Node, address string, server *stub.Server, config *tls.Config) (stop func()) {
	t.Helper()
	var l net.Listener
	Eventually(t, Soon, func() error { // a child before its exec may still have the last listener
		return n.Do(func() (err error) { l, err = net.Listen("tcp", address); return err })
	})
	if config != nil {
		l = tls.NewListener(l, config)
	}
	return Meanwhile(t, func(ctx context.Context) {
		if err := server.Serve(ctx, l); err != nil {
			t.Error(err)
		}
	})
}

// Node returns a node of the lab.
func (s *Session) Node(name string) *lab.Node { return s.Lab.Node(name) }

// Router returns a node that runs FRR.
func (s *Session) Router(name string) Router { return Router{s.Lab.Node(name)} }

// RouterConf returns the configuration of an FRR router that accepts any route, with
// these lines in its bgp section.
func RouterConf(asn uint32, lines string) string {
	return fmt.Sprintf(`frr defaults traditional
log stdout debugging
debug bgp updates in
router bgp %d
 bgp router-id 10.255.0.1
 no bgp ebgp-requires-policy
 timers bgp 1 3
%s
`, asn, lines)
}

// SpeakerConf returns the configuration of s with these addresses as its VIP and these
// lines as its bgp section.
func SpeakerConf(addresses []string, lines string) string {
	return `apiVersion: herald.dev/v1alpha1
kind: Speaker
nodeName: s
vips:
- {name: control-plane, addresses: ["` + strings.Join(addresses, `", "`) + `"], announce: bgp, checks: [apiserver]}
checks:
- {name: apiserver, http: {url: "http://127.0.0.1:6443/readyz"}}
bgp:
  asn: 64512
  routerID: 10.255.0.2
  ` + strings.ReplaceAll(strings.TrimSpace(lines), "\n", "\n  ") + "\n"
}

// Established waits until both ends of a session report that it is up: s as the
// router's neighbor and the router as the speaker's peer.
func (s *Session) Established(t *testing.T, router, neighborName, peerName string) (n Neighbor, p bgp.Session) {
	t.Helper()
	Eventually(t, Soon, func() (err error) {
		if n, err = s.Router(router).Neighbor(t, neighborName); err != nil {
			return err
		}
		if p, err = s.Peer(t, peerName); err != nil {
			return err
		}
		if n.State != "Established" || p.State != "established" {
			return fmt.Errorf("session of %s: %s reports %q (last reset: %s), status shows %q (%s)",
				peerName, router, n.State, n.LastReset, p.State, p.Reason)
		}
		return nil
	})
	return n, p
}

// Path waits until the router has exactly one path to the VIP, and a route in its
// kernel, and returns the path.
func (s *Session) Path(t *testing.T, router, vip string) (p Path) {
	t.Helper()
	Eventually(t, Soon, func() error {
		paths, _, err := s.Router(router).Paths(t, vip)
		if err != nil {
			return err
		}
		if len(paths) != 1 || !paths[0].NextHop.IsValid() {
			return fmt.Errorf("%s has no usable path to %s: %+v", router, vip, paths)
		}
		p = paths[0]
		routes, err := KernelRoutes(s.Node(router), vip)
		if err == nil && len(routes) == 0 {
			err = fmt.Errorf("%s has a path to %s, but no route", router, vip)
		}
		return err
	})
	return p
}

// NoPath waits until the router has no path to the address.
func (s *Session) NoPath(t *testing.T, router, address string) {
	t.Helper()
	Eventually(t, Soon, func() error {
		paths, _, err := s.Router(router).Paths(t, address)
		if err == nil && len(paths) > 0 {
			err = fmt.Errorf("%s still has %+v", router, paths)
		}
		return err
	})
}

// HasAddress waits until the address is on s, or is not.
func (s *Session) HasAddress(t *testing.T, address string, want bool) {
	t.Helper()
	Eventually(t, Soon, func() error {
		list, err := Addresses(s.Node("s"))
		if err != nil {
			return err
		}
		return ErrorIf(slices.Contains(list, HostPrefix(address).Addr()) != want, "lo has %v", list)
	})
}
