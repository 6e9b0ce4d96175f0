//go:build e2e

package machines

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/stub"
)

// machines is the lab of machines.clab.yml. The test plays kubeadm's part: before init
// a master lacks all of kubeadm's files.
type machines struct {
	*site.Cluster
	pki *site.PKI
	// apiservers maps the masters' names to their apiservers.
	apiservers map[string]*apiserver
}

// apiserver is a stub on a master.
type apiserver struct {
	*stub.Server
	stop func()
}

// newMachines makes machines without power, of two images. The masters' image may
// depend on the master.
func newMachines(t *testing.T, masters, r1 lab.Image) *machines {
	t.Helper()
	l := site.StartTopology(t, machinesFile, nil, map[string]lab.Image{"master": masters, "router": r1})
	m := &machines{
		Cluster:    &site.Cluster{Lab: l, Routers: []site.Router{{Node: l.Node("r1")}}},
		pki:        site.NewPKI(t),
		apiservers: make(map[string]*apiserver),
	}
	for i := 1; i <= 3; i++ {
		m.Masters = append(m.Masters, site.Master{Number: i, Lab: l, Flat: true})
	}
	for _, name := range []string{"m1", "m2", "m3", "r1"} {
		site.Must(t, l.Node(name).PowerOff())
	}
	return m
}

// r1 returns the router.
func (s *machines) r1() site.Router { return s.Routers[0] }

// named returns the masters with these names, in their order.
func (s *machines) named(names ...string) (list []site.Master) {
	for _, name := range names {
		if i := slices.IndexFunc(s.Masters, func(m site.Master) bool { return m.String() == name }); i >= 0 {
			list = append(list, s.Masters[i])
		}
	}
	return list
}

// kubeadm has the effects of `kubeadm init` and `join` on a master that Herald sees: a
// CA, and an apiserver that is not ready yet.
func (s *machines) kubeadm(t *testing.T, m site.Master) {
	t.Helper()
	const write = `mkdir -p /etc/kubernetes/pki && printf %s "$1" > /etc/kubernetes/pki/ca.crt`
	site.MustRun(t, m.Speaker(), "sh", "-c", write, "sh", string(s.pki.CA(t)))
	a := &apiserver{Server: stub.APIServer(m.String())}
	a.SetAll(stub.Answer{Status: http.StatusInternalServerError, Body: "[-]etcd failed"})
	a.stop = site.ServeTLS(t, m.Base(), ":6443", a.Server, &tls.Config{Certificates: []tls.Certificate{s.pki.Pair(t, "apiserver")}})
	s.apiservers[m.String()] = a
}

// ready makes the master's apiserver healthy.
func (s *machines) ready(m site.Master) { s.apiservers[m.String()].SetAll(stub.Answer{}) }

// loses cuts the power of a master, its apiserver too.
func (s *machines) loses(t *testing.T, m site.Master) {
	t.Helper()
	site.Must(t, m.Base().PowerOff())
	s.apiservers[m.String()].stop()
}

// withdrawn waits until every master's speaker reports that its check of the apiserver
// fails for this reason, and checks that it announces nothing.
func (s *machines) withdrawn(t *testing.T, reason string) {
	t.Helper()
	for _, m := range s.Masters {
		m.Shows(t, func(status admin.Status) error {
			if c := status.Checks[0]; !strings.Contains(c.Reason, reason) {
				return fmt.Errorf("check %s of %s is %s: %s, want %s", c.Name, m, c.State, c.Reason, reason)
			}
			for _, v := range status.VIPs {
				if v.Stage != "withdrawn" {
					t.Fatalf("%s has %s %s: %s", m, v.Address, v.Stage, v.Reason)
				}
			}
			return nil
		})
	}
}

// serves waits until a ready apiserver answers for the VIP, as seen from a machine.
func (s *machines) serves(t *testing.T, from *lab.Node) {
	t.Helper()
	get := site.HTTPClient(from, s.pki.Client(t))
	for _, url := range []string{"https://" + site.VIP4 + ":6443/readyz", "https://[" + site.VIP6 + "]:6443/readyz"} {
		site.Eventually(t, site.Soon, func() error {
			status := site.Ask(t.Context(), get, url)
			return site.ErrorIf(status != http.StatusOK, "%s answers %s with %d, want 200", url, from.Name(), status)
		})
	}
}

// redirected returns how many ICMP redirects the router has sent since it has power.
func (s *machines) redirected(t *testing.T) int {
	t.Helper()
	out := site.MustRun(t, s.r1().Node, "cat", "/proc/net/snmp")
	var names []string // the line before the values
	for line := range strings.Lines(out) {
		values := strings.Fields(line)
		if i := slices.Index(names, "OutRedirects"); i >= 0 {
			n := site.Get[int](t)(strconv.Atoi(values[i]))
			return n
		}
		names = values
	}
	t.Fatalf("the kernel does not count redirects:\n%s", out)
	return 0
}
