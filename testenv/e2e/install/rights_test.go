//go:build e2e

package install

import (
	"fmt"
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
)

// rights returns the capabilities in the manifest for this configuration, in lower case.
func rights(t *testing.T, file string) []string {
	t.Helper()
	pod, err := manifests.Make(manifests.StaticPod, manifests.Options{Config: parseConfig(t, file)})
	site.Must(t, err)
	added := regexp.MustCompile(`(?m)^ +add: \[(.*)\]$`).FindSubmatch(pod)
	if added == nil {
		t.Fatalf("no capabilities in\n%s", pod)
	}
	return strings.Split(strings.ToLower(string(added[1])), ", ")
}

// parseConfig returns the configuration of a file, without the files that it names.
func parseConfig(t *testing.T, file string) *config.Config {
	t.Helper()
	c, err := config.Parse(file, []byte(site.ReadFile(t, file)))
	site.Must(t, err)
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
	before, err := f.Election(t, holder)
	site.Must(t, err)
	load, began := f.Connect(t), time.Now()
	site.StartConfined(t, f.Node("m1-speaker"), slices.DeleteFunc(slices.Clone(given), func(c string) bool { return c == lacking }))
	f.Speaker("m1").Shows(t, func(status admin.Status) error {
		for _, v := range status.VIPs {
			if want := "CAP_" + strings.ToUpper(lacking); v.State != admin.Blocked || !strings.Contains(v.Error, want) {
				return fmt.Errorf("status says %s: %s; want it blocked because %s is missing", v.Told(), v.Why(time.Now()), want)
			}
		}
		return nil
	})
	load.GoesOn(t, 300)
	load.None(t, began)
	after, err := f.Election(t, holder)
	site.Must(t, err)
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
