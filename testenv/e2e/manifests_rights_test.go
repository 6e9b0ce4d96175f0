//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/herald-vip/herald/admin"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/manifests"
	"github.com/herald-vip/herald/testenv/lab"
)

// rights are the capabilities that a manifest for this configuration gives, in
// lower case.
func rights(t *testing.T, file string) []string {
	t.Helper()
	pod, err := manifests.Make(manifests.StaticPod, manifests.Options{Config: parseConfig(t, file)})
	must(t, err)
	added := regexp.MustCompile(`(?m)^ +add: \[(.*)\]$`).FindSubmatch(pod)
	if added == nil {
		t.Fatalf("no capabilities in\n%s", pod)
	}
	return strings.Split(strings.ToLower(string(added[1])), ", ")
}

// parseConfig is the configuration of a file, without the files that it names.
func parseConfig(t *testing.T, file string) *config.Config {
	t.Helper()
	data, err := os.ReadFile(file)
	must(t, err)
	c, err := config.Parse(file, data)
	must(t, err)
	return c
}

// confined is herald as a container runtime starts it: root with these capabilities
// and a way to no others.
func confined(capabilities []string) []string {
	bounds := "-all"
	for _, c := range capabilities {
		bounds += ",+" + c
	}
	return []string{"setpriv", "--bounding-set=" + bounds, "--inh-caps=" + bounds, "--no-new-privs",
		"herald", "run", "--config", "/etc/herald/herald.yaml"}
}

// startConfined starts a speaker, behind what wraps the command, and kills it when the test is
// over. What it logs is in a file.
func startConfined(t *testing.T, n *lab.Node, capabilities []string, wrap ...string) (log string) {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), n.Name())
	must(t, err)
	defer f.Close()
	p, err := n.Start(&exec.Cmd{Args: append(wrap, confined(capabilities)...), Stdout: f, Stderr: f})
	must(t, err)
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
		if text, err := os.ReadFile(f.Name()); err == nil && t.Failed() {
			t.Logf("log of %s:\n%s", n.Name(), text)
		}
	})
	return f.Name()
}

// TestManifestRightsBGP runs speakers with just the capabilities that their
// manifests give, and without each of them.
func TestManifestRightsBGP(t *testing.T) {
	for _, test := range []struct {
		name, frr, herald string
		neighbor, peer    string
		want              []string
		lacking           map[string]string // what is said without a capability
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
			s := newSite(t, files{
				"r1.conf":            routerConf(64500, test.frr),
				"herald/herald.yaml": speakerConf([]string{vip4}, test.herald),
				"herald/password":    "secret",
			})
			given := rights(t, filepath.Join(s.config, "herald.yaml"))
			if !slices.Equal(given, test.want) {
				t.Fatalf("the manifest gives %v, want %v", given, test.want)
			}
			boot(t, s.Lab, "r1")
			for lacking, says := range test.lacking {
				t.Run("without "+lacking, func(t *testing.T) {
					log := startConfined(t, s.Node("s"), slices.DeleteFunc(slices.Clone(given), func(c string) bool { return c == lacking }))
					s.says(t, log, says)
				})
			}
			startConfined(t, s.Node("s"), given)
			s.established(t, "r1", test.neighbor, test.peer)
			s.path(t, "r1", vip4)
			s.hasAddress(t, vip4, true)
		})
	}
}

// says waits until the speaker's log or status has words.
func (s speaker) says(t *testing.T, log, words string) {
	t.Helper()
	eventually(t, soon, func() error {
		text, err := os.ReadFile(log)
		if err != nil {
			return err
		}
		out, _ := run(t, s.Node, "herald", "status") // fails if it did not start
		if all := string(text) + out; !strings.Contains(all, words) {
			return fmt.Errorf("%s does not say %q:\n%s", s.Name(), words, all)
		}
		return nil
	})
}

// TestManifestRightsARP has three masters elect a holder with just the
// capabilities of their manifests, and hand the VIP over.
func TestManifestRightsARP(t *testing.T) {
	f := newFlat(t)
	given := rights(t, filepath.Join(f.dir, "m1", "herald.yaml"))
	if want := []string{"net_admin", "net_raw"}; !slices.Equal(given, want) {
		t.Fatalf("the manifest gives %v, want %v", given, want)
	}
	for _, m := range flatMasters() {
		boot(t, f.Lab, m+"-apiserver")
	}
	t.Run("without net_raw", func(t *testing.T) {
		log := startConfined(t, f.Node("m1-speaker"), []string{"net_admin"})
		f.speaker("m1").says(t, log, "cannot announce or watch VIPs on a link")
	})
	for _, m := range flatMasters() {
		startConfined(t, f.Node(m+"-speaker"), given)
	}
	for _, m := range flatMasters() {
		f.ready(t, m)
	}
	holder := f.held(t)
	if status, err := f.speaker(holder).status(t); err != nil || status.Election.Fence != admin.FenceOn {
		t.Errorf("the fence: %+v, %v", status.Election, err)
	}
	load := f.connect(t)
	load.works(t)
	f.planned(t, holder, func() error { return f.herald(t, holder, "drain") })
	f.held(t, f.others(holder)...)
	load.works(t)
	load.none(t)
}

// TestManifestRightsRealtime shows what the capabilities for `realtime: true` are
// for: with them it is, and without them it says what is missing and announces.
func TestManifestRightsRealtime(t *testing.T) {
	s := newSite(t, files{"herald/herald.yaml": "realtime: true\n" + speakerConf([]string{vip4}, `peers: [{address: 10.0.1.254, asn: 64500}]`)})
	given := rights(t, filepath.Join(s.config, "herald.yaml"))
	if want := []string{"ipc_lock", "net_admin", "sys_nice"}; !slices.Equal(given, want) {
		t.Fatalf("the manifest gives %v, want %v", given, want)
	}
	boot(t, s.Lab, "r1")
	for _, test := range []struct {
		name         string
		capabilities []string
		want         string
	}{
		{"with", given, "on"},
		{"without", []string{"net_admin"}, "real-time scheduling: operation not permitted: give the process CAP_SYS_NICE\nlock memory: operation not permitted: give the process CAP_IPC_LOCK"},
	} {
		t.Run(test.name, func(t *testing.T) {
			startConfined(t, s.Node("s"), test.capabilities)
			s.path(t, "r1", vip4)
			status, err := s.status(t)
			must(t, err)
			if !strings.HasPrefix(status.Realtime, test.want) {
				t.Errorf("status says %q of real time, want %q", status.Realtime, test.want)
			}
		})
	}
}
