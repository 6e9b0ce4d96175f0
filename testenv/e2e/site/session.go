//go:build e2e

package site

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/status/admin"
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

// Write writes the files below a folder.
func (f Files) Write(t *testing.T, dir string) {
	t.Helper()
	for name, content := range f {
		file := filepath.Join(dir, name)
		Must(t, os.MkdirAll(filepath.Dir(file), 0o755))
		Must(t, os.WriteFile(file, []byte(content), 0o644))
	}
}

// NewSession makes a site with a healthy apiserver. It boots no node.
func NewSession(t *testing.T, own Files) *Session {
	t.Helper()
	dir := t.TempDir()
	Must(t, os.CopyFS(dir, os.DirFS("../../topologies/e2e-session")))
	own.Write(t, dir)
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
		p, err = s.Peer(t, peerName)
		return Check(err, n.State != "Established" || p.State != "established", "session of %s: %s reports %q (last reset: %s), status shows %q (%s)",
			peerName, router, n.State, n.LastReset, p.State, p.Reason)
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
		return Check(err, len(routes) == 0, "%s has a path to %s, but no route", router, vip)
	})
	return p
}

// NoPath waits until the router has no path to the address.
func (s *Session) NoPath(t *testing.T, router, address string) {
	t.Helper()
	Eventually(t, Soon, func() error {
		paths, _, err := s.Router(router).Paths(t, address)
		return Check(err, len(paths) > 0, "%s still has %+v", router, paths)
	})
}

// HasAddress waits until the address is on s, or is not.
func (s *Session) HasAddress(t *testing.T, address string, want bool) {
	t.Helper()
	Eventually(t, Soon, func() error {
		list, err := Addresses(s.Node("s"))
		return Check(err, slices.Contains(list, HostPrefix(address).Addr()) != want, "lo has %v", list)
	})
}

// Speaker is a node that runs herald.
type Speaker struct{ *lab.Node }

// Status returns the output of `herald status`.
func (s Speaker) Status(t *testing.T) (admin.Status, error) {
	t.Helper()
	var status admin.Status
	out, err := Run(t, s.Node, "herald", "status", "-o", "json")
	if err != nil {
		return status, err
	}
	err = json.Unmarshal([]byte(out), &status)
	return status, err
}

// Peer returns the named peer in the status.
func (s Speaker) Peer(t *testing.T, name string) (bgp.Session, error) {
	t.Helper()
	status, err := s.Status(t)
	if err != nil {
		return bgp.Session{}, err
	}
	for _, p := range status.Peers {
		if p.Name == name {
			return p, nil
		}
	}
	return bgp.Session{}, fmt.Errorf("status of %s has no peer %s", s.Name(), name)
}

// Shows waits until check returns no error for the status.
func (s Speaker) Shows(t *testing.T, check func(admin.Status) error) {
	t.Helper()
	Becomes(t, func() (admin.Status, error) { return s.Status(t) }, check)
}

// ShowsVIPs is Shows for each VIP in the status.
func (s Speaker) ShowsVIPs(t *testing.T, check func(admin.VIP) error) {
	t.Helper()
	s.Shows(t, func(status admin.Status) error {
		for _, v := range status.VIPs {
			if err := check(v); err != nil {
				return err
			}
		}
		return nil
	})
}

// ShowsPeer is Shows for one peer in the status.
func (s Speaker) ShowsPeer(t *testing.T, name string, check func(bgp.Session) error) {
	t.Helper()
	Becomes(t, func() (bgp.Session, error) { return s.Peer(t, name) }, check)
}

// Addresses returns the addresses on the node's loopback interface, from the kernel.
func Addresses(n *lab.Node) ([]netip.Addr, error) {
	h, err := n.Handle()
	if err != nil {
		return nil, err
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err != nil {
		return nil, err
	}
	list, err := h.AddrList(lo, unix.AF_UNSPEC)
	if err != nil {
		return nil, err
	}
	var out []netip.Addr
	for _, a := range list {
		if addr, ok := netip.AddrFromSlice(a.IP); ok {
			out = append(out, addr.Unmap())
		}
	}
	return out, nil
}
