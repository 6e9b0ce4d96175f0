//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/herald-vip/herald/admin"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/stub"
)

// The VIPs of most tests.
const (
	vip4 = "10.99.0.10"
	vip6 = "fd00:99::10"
)

// site is the lab of e2e-session.clab.yml: a speaker that watches over a stub
// apiserver, and the routers around it.
type site struct {
	*lab.Lab
	speaker
	// config is the folder that s has as /etc/herald.
	config string
	readyz *stub.Server
	// apiserverDies ends what serves readyz, as a SIGKILL would.
	apiserverDies func()
}

// files are the configurations of a site by their path in the topology's
// folder; those not given are as they are there.
type files map[string]string

// newSite makes a site whose apiserver is healthy. Nothing is booted.
func newSite(t *testing.T, own files) *site {
	t.Helper()
	dir := t.TempDir()
	must(t, os.CopyFS(dir, os.DirFS("../topologies/e2e-session")))
	for name, content := range own {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
	s := &site{
		Lab:    startLab(t, "e2e-session.clab.yml", map[string]string{"SESSION_DIR": dir}),
		config: filepath.Join(dir, "herald"),
		readyz: stub.APIServer("s"),
	}
	s.speaker = speaker{s.Node("s")}
	s.apiserverStarts(t)
	return s
}

// apiserverStarts has readyz served, from the beginning and after apiserverDies.
func (s *site) apiserverStarts(t *testing.T) {
	t.Helper()
	s.apiserverDies = serve(t, s.Node("s"), ":6443", s.readyz)
}

// serve runs a stub server in the node's network until stop or the end of the test.
func serve(t *testing.T, n *lab.Node, address string, server *stub.Server) (stop func()) {
	t.Helper()
	return serveTLS(t, n, address, server, nil)
}

// serveTLS is serve over TLS, if config is set.
func serveTLS(t *testing.T, n *lab.Node, address string, server *stub.Server, config *tls.Config) (stop func()) {
	t.Helper()
	var l net.Listener
	eventually(t, soon, func() error { // a child that is not yet another program may still have the last listener
		return n.Do(func() (err error) { l, err = net.Listen("tcp", address); return err })
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(ctx, l, config.Clone()); err != nil { // the server writes to its own
			t.Error(err)
		}
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return stop
}

// Node returns a node of the lab.
func (s *site) Node(name string) *lab.Node { return s.Lab.Node(name) }

// router returns a node that runs FRR.
func (s *site) router(name string) router { return router{s.Lab.Node(name)} }

// routerConf is the configuration of an FRR router that takes any route, with
// these lines in its bgp section.
func routerConf(asn uint32, lines string) string {
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

// speakerConf is the configuration of s with these addresses as its VIP and
// these lines as its bgp section.
func speakerConf(addresses []string, lines string) string {
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

// established waits until both ends of a session say that it is up: s as the
// router's neighbor and the router as the speaker's peer.
func (s *site) established(t *testing.T, router, neighborName, peerName string) (n neighbor, p admin.Peer) {
	t.Helper()
	eventually(t, soon, func() (err error) {
		if n, err = s.router(router).neighbor(t, neighborName); err != nil {
			return err
		}
		if p, err = s.peer(t, peerName); err != nil {
			return err
		}
		if n.State != "Established" || p.State != "established" {
			return fmt.Errorf("session of %s: %s says %q (last reset: %s), status says %q (%s)",
				peerName, router, n.State, n.LastReset, p.State, p.Reason)
		}
		return nil
	})
	return n, p
}

// path waits until the router has one path to the VIP, and a route for it in
// its kernel, and returns the path.
func (s *site) path(t *testing.T, router, vip string) (p path) {
	t.Helper()
	eventually(t, soon, func() error {
		paths, _, err := s.router(router).paths(t, vip)
		if err != nil {
			return err
		}
		if len(paths) != 1 || !paths[0].NextHop.IsValid() {
			return fmt.Errorf("%s has no path of use to %s: %+v", router, vip, paths)
		}
		p = paths[0]
		routes, err := kernelRoutes(s.Node(router), vip)
		if err == nil && len(routes) == 0 {
			err = fmt.Errorf("%s has a path to %s, but no route", router, vip)
		}
		return err
	})
	return p
}

// hasAddress waits until the address is on s, or is not.
func (s *site) hasAddress(t *testing.T, address string, want bool) {
	t.Helper()
	eventually(t, soon, func() error {
		list, err := addresses(s.Node("s"))
		if err != nil {
			return err
		}
		if got := slices.Contains(list, hostPrefix(address).Addr()); got != want {
			return errors.New("on lo there is " + fmt.Sprint(list))
		}
		return nil
	})
}
