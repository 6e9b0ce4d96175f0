//go:build e2e

package install

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/manifests"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/stub"
)

// rights returns the capabilities in the manifest for this configuration, in lower case.
func rights(t *testing.T, file string) []string {
	t.Helper()
	pod := site.Get[[]byte](t)(manifests.Make(manifests.StaticPod, manifests.Options{Config: parseConfig(t, file)}))
	added := regexp.MustCompile(`(?m)^ +add: \[(.*)\]$`).FindSubmatch(pod)
	if added == nil {
		t.Fatalf("no capabilities in\n%s", pod)
	}
	return strings.Split(strings.ToLower(string(added[1])), ", ")
}

// parseConfig returns the configuration of a file, without the files that it names.
func parseConfig(t *testing.T, file string) *config.Config {
	t.Helper()
	c := site.Get[*config.Config](t)(config.Parse(file, []byte(site.ReadFile(t, file))))
	return c
}

// TestManifestRightsBGP runs speakers with only the capabilities of their manifests,
// and without each of them.
func TestManifestRightsBGP(t *testing.T) {
	for _, test := range []struct {
		name, frr, herald string
		neighbor, peer    string
		want              []string
		lacking           map[string]string // the message without a capability
	}{{
		name:     "a peer",
		frr:      " neighbor 10.0.1.1 remote-as 64512\n neighbor 10.0.1.1 timers connect 1\n neighbor 10.0.1.1 password secret\n neighbor 10.0.1.1 bfd",
		herald:   `peers: [{address: 10.0.1.254, asn: 64500, passwordFile: /etc/herald/password, bfd: {}}]`,
		neighbor: "10.0.1.1", peer: "10.0.1.254",
		want:    []string{"net_admin"},
		lacking: map[string]string{"net_admin": "put 10.99.0.10 on lo: netlink receive: operation not permitted: Herald needs CAP_NET_ADMIN"},
	}, {
		name:     "a peer that connects",
		frr:      " neighbor 10.0.1.1 remote-as 64512\n neighbor 10.0.1.1 timers connect 1",
		herald:   "listen: {}\npeers: [{address: 10.0.1.254, asn: 64500}]",
		neighbor: "10.0.1.1", peer: "10.0.1.254",
		want:    []string{"net_admin", "net_bind_service"},
		lacking: map[string]string{"net_bind_service": "bgp: start: listen tcp4 0.0.0.0:179: bind: permission denied"},
	}, {
		name:     "an unnumbered peer",
		frr:      " neighbor eth1 interface remote-as external\n neighbor eth1 timers connect 1",
		herald:   `peers: [{interface: eth1, asn: 64500}]`,
		neighbor: "eth1", peer: "eth1",
		want:    []string{"net_admin", "net_raw"},
		lacking: map[string]string{"net_raw": "cannot look for the router on eth1: listen for router advertisements: "},
	}} {
		t.Run(test.name, func(t *testing.T) {
			s := site.NewSession(t, site.Files{
				"r1.conf":            site.RouterConf(64500, test.frr),
				"herald/herald.yaml": site.SpeakerConf([]string{site.VIP4}, test.herald),
				"herald/password":    "secret",
			})
			given := rights(t, filepath.Join(s.Config, "herald.yaml"))
			if !slices.Equal(given, test.want) {
				t.Fatalf("the manifest gives %v, want %v", given, test.want)
			}
			site.Boot(t, s.Lab, "r1")
			for lacking, says := range test.lacking {
				t.Run("without "+lacking, func(t *testing.T) {
					log := site.StartConfined(t, s.Node("s"), slices.DeleteFunc(slices.Clone(given), func(c string) bool { return c == lacking }))
					waitForWords(t, s.Speaker, log, says)
				})
			}
			site.StartConfined(t, s.Node("s"), given)
			s.Established(t, "r1", test.neighbor, test.peer)
			s.Path(t, "r1", site.VIP4)
			s.HasAddress(t, site.VIP4, true)
		})
	}
}

// waitForWords waits until the speaker's log or status contains words.
func waitForWords(t *testing.T, s site.Speaker, log, words string) {
	t.Helper()
	site.Eventually(t, site.Soon, func() error {
		text, err := os.ReadFile(log)
		if err != nil {
			return err
		}
		out, _ := site.Run(t, s.Node, "herald", "status") // fails if it did not start
		all := string(text) + out
		return site.ErrorIf(!strings.Contains(all, words), "%s does not say %q:\n%s", s.Name(), words, all)
	})
}

// TestManifestRightsARP lets three masters elect a holder with only the capabilities
// of their manifests, and transfer the VIP.
func TestManifestRightsARP(t *testing.T) {
	f := site.NewFlat(t)
	given := rights(t, filepath.Join(f.Dir, "m1", "herald.yaml"))
	if want := []string{"net_admin", "net_raw"}; !slices.Equal(given, want) {
		t.Fatalf("the manifest gives %v, want %v", given, want)
	}
	for _, m := range site.FlatMasters() {
		site.Boot(t, f.Lab, m+"-apiserver")
	}
	t.Run("without net_raw", func(t *testing.T) {
		log := site.StartConfined(t, f.Node("m1-speaker"), []string{"net_admin"})
		waitForWords(t, f.Speaker("m1"), log, "cannot announce or watch VIPs on a link")
	})
	for _, m := range f.Others("m1") {
		site.StartConfined(t, f.Node(m+"-speaker"), given)
	}
	file := filepath.Join(f.Dir, "m1", "herald.yaml")
	text := site.ReadFile(t, file)
	site.Must(t, os.WriteFile(file, []byte(strings.Replace(text, "announce: arp", "announce: arp\n  priority: 200\n  preempt: true", 1)), 0o600))
	for _, lacking := range given {
		t.Run("preferred, without "+lacking, func(t *testing.T) { takesNothing(t, f, given, lacking) })
	}
	site.Must(t, os.WriteFile(file, []byte(text), 0o600))
	site.StartConfined(t, f.Node("m1-speaker"), given)
	for _, m := range site.FlatMasters() {
		f.Ready(t, m)
	}
	holder := f.Held(t)
	if status, err := f.Speaker(holder).Status(t); err != nil || status.Election.Fence != admin.FenceOn {
		t.Errorf("the fence: %+v, %v", status.Election, err)
	}
	load, began := f.Connect(t), time.Now()
	load.GoesOn(t, 100)
	f.Planned(t, holder, func() error { return f.Herald(t, holder, "drain") })
	f.Held(t, f.Others(holder)...)
	load.GoesOn(t, 100)
	load.None(t, began)
}

// takesNothing starts m1, which is preferred, without a capability: it reports that,
// and the VIP does not move.
func takesNothing(t *testing.T, f *site.Flat, given []string, lacking string) {
	holder := f.Held(t)
	before := site.Get[*admin.Election](t)(f.Election(t, holder))
	load, began := f.Connect(t), time.Now()
	site.StartConfined(t, f.Node("m1-speaker"), slices.DeleteFunc(slices.Clone(given), func(c string) bool { return c == lacking }))
	f.Speaker("m1").ShowsVIPs(t, func(v admin.VIP) error {
		want := "CAP_" + strings.ToUpper(lacking)
		return site.ErrorIf(v.State != admin.Blocked || !strings.Contains(v.Error, want), "status says %s: %s; want it blocked because %s is missing", v.Told(), v.Why(time.Now()), want)
	})
	load.GoesOn(t, 300)
	load.None(t, began)
	after := site.Get[*admin.Election](t)(f.Election(t, holder))
	if now, prev := after.Leases[0], before.Leases[0]; now.Holder != prev.Holder || now.Epoch != prev.Epoch {
		t.Errorf("%s held the lease in epoch %d, now %s does in epoch %d", prev.Holder, prev.Epoch, now.Holder, now.Epoch)
	}
}

// TestManifestRightsRealtime checks the capabilities for `realtime: true`: with them
// Herald runs in real time; without them it reports the missing ones and announces.
func TestManifestRightsRealtime(t *testing.T) {
	s := site.NewSession(t, site.Files{"herald/herald.yaml": "realtime: true\n" + site.SpeakerConf([]string{site.VIP4}, `peers: [{address: 10.0.1.254, asn: 64500}]`)})
	given := rights(t, filepath.Join(s.Config, "herald.yaml"))
	if want := []string{"ipc_lock", "net_admin", "sys_nice"}; !slices.Equal(given, want) {
		t.Fatalf("the manifest gives %v, want %v", given, want)
	}
	site.Boot(t, s.Lab, "r1")
	for _, test := range []struct {
		name         string
		capabilities []string
		want         string
	}{
		{"with", given, "on"},
		{"without", []string{"net_admin"}, "real-time scheduling: operation not permitted: give the process CAP_SYS_NICE\nlock memory: operation not permitted: give the process CAP_IPC_LOCK"},
	} {
		t.Run(test.name, func(t *testing.T) {
			site.StartConfined(t, s.Node("s"), test.capabilities)
			s.Path(t, "r1", site.VIP4)
			s.Shows(t, func(status admin.Status) error { // the router may still have the previous speaker's route
				return site.ErrorIf(!strings.HasPrefix(status.Realtime, test.want), "status reports %q about real time, want %q", status.Realtime, test.want)
			})
		})
	}
}

// newBalancing returns the flat lab with m1 as a worker, and m2 and m3 as masters that
// serve and advertise it.
func newBalancing(t *testing.T) *site.Flat {
	t.Helper()
	f := site.NewFlat(t)
	for _, m := range site.FlatMasters() {
		checks := "checks: [{name: apiserver, http: {url: \"http://127.0.0.1:6443/readyz\"}}]\n"
		if m == "m1" {
			checks = ""
		}
		f.Rewrite(t, m, "herald.yaml", func(string) string { return site.BalancingConf(m, checks) })
		if m != "m1" {
			site.Boot(t, f.Lab, m+"-apiserver", m+"-speaker")
		}
	}
	return f
}

// leadsToMaster waits until a node's own clients reach a master.
func leadsToMaster(t *testing.T, n *lab.Node) {
	t.Helper()
	client := site.HTTPClient(n, nil)
	site.Eventually(t, site.Soon, func() error {
		got := site.Ask(t.Context(), client, "http://127.0.0.1:9443/readyz")
		return site.ErrorIf(got != http.StatusOK, "answered %d", got)
	})
}

// TestManifestRightsBalancer lets a worker balance with only the capability of its
// manifest, and where it cannot write to /proc/sys, as in a pod.
func TestManifestRightsBalancer(t *testing.T) {
	f := newBalancing(t)
	given := rights(t, filepath.Join(f.Dir, "m1", "herald.yaml"))
	if want := []string{"net_admin"}; !slices.Equal(given, want) {
		t.Fatalf("the manifest gives %v, want %v", given, want)
	}
	t.Run("without net_admin", func(t *testing.T) {
		log := site.StartConfined(t, f.Node("m1-speaker"), []string{"net_raw"})
		waitForWords(t, f.Speaker("m1"), log, "CAP_NET_ADMIN")
	})
	site.StartConfined(t, f.Node("m1-speaker"), given, site.ReadOnlySettings()...)
	leadsToMaster(t, f.Node("m1-speaker"))
}

// TestUnitBalancer runs the unit of a worker under systemd, with its sandbox: it
// balances, and continues to during its replacement.
func TestUnitBalancer(t *testing.T) {
	f := newBalancing(t)
	d := bootSystemd(t, f.Node("m1-speaker"), unitOf(t, filepath.Join(f.Dir, "m1")))
	d.becomes(t, "ActiveState", "active")
	leadsToMaster(t, f.Node("m1-speaker"))
	d.mustCtl(t, "stop")
	leadsToMaster(t, f.Node("m1-speaker")) // the kernel does, for a while
	d.mustCtl(t, "start")
	leadsToMaster(t, f.Node("m1-speaker"))
}

// TestHAProxyAsksHerald runs HAProxy with the file of docs/balancing.md; Herald
// reports which masters are healthy. A master with a failed apiserver, or a draining
// one, receives no more connections.
func TestHAProxyAsksHerald(t *testing.T) {
	f := site.NewFlat(t)
	apiservers := make(map[string]*stub.Server)
	for _, m := range []string{"m1", "m2"} {
		f.Rewrite(t, m, "herald.yaml", func(string) string {
			return strings.Replace(site.BalancingConf(m, "checks: [{name: apiserver, http: {url: \"http://127.0.0.1:6443/readyz\"}}]\n"), "name: kubernetes", "name: master", 1) +
				"loadBalancer: {type: external}\nmetrics: {listen: \"0.0.0.0:9474\"}\n"
		})
		apiservers[m] = stub.APIServer(m)
		site.Serve(t, f.Node(m), ":6443", apiservers[m])
		site.Boot(t, f.Lab, m+"-speaker")
	}
	file := site.ReadFile(t, "../../../manifests/external/haproxy.cfg")
	site.Must(t, os.WriteFile(filepath.Join(f.Dir, "m3", "haproxy.cfg"), []byte(strings.ReplaceAll(file, " 10.0.1.", " 10.4.0.")), 0o600))
	client := f.Node("m3-speaker") // it does not run Herald
	site.Daemonise(t, client, "haproxy", "-db", "-f", "/etc/herald/haproxy.cfg")

	get := site.HTTPClient(client, nil)
	inARow := func(want int) {
		t.Helper()
		const enough = 10 // by then each of two servers has had its turn
		site.Eventually(t, site.Soon, func() error {
			for range enough {
				if got := site.Ask(t.Context(), get, "http://127.0.0.1:6443/readyz"); got != want {
					return fmt.Errorf("answered %d, want %d", got, want)
				}
			}
			return nil
		})
	}
	inARow(http.StatusOK)
	apiservers["m1"].SetAll(stub.Answer{Status: http.StatusInternalServerError})
	inARow(http.StatusOK) // from m2 alone
	site.Must(t, f.Herald(t, "m2", "drain"))
	inARow(0) // and from none
	site.Must(t, f.Herald(t, "m2", "undrain"))
	inARow(http.StatusOK)
}
