//go:build e2e

package machines

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/bgp/bfd"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/lab"
)

const heraldYAML = "/etc/herald/herald.yaml"

// routerConfig is one of the configurations of manifests/routers, with the matching
// settings of the masters.
type routerConfig struct {
	name, file string
	upstream   upstream
	// comment and heraldComment are words in the comments to turn into configuration, in
	// the router's file and in the masters'.
	comment, heraldComment string
	// peers replaces the peers of the masters.
	peers string
	// singleHop makes the masters speak BFD for a neighbour on the link.
	singleHop bool
	// neighbour is the router's name for a master, a format of its number.
	neighbour string
	// deep selects the detailed tests of the configuration.
	deep bool
}

const (
	overIPv6   = "\n  - {address: \"fd00:1::254\", asn: 64500, families: [ipv4, ipv6], bfd: {}}\n"
	unnumbered = "\n  - {interface: eth2, asn: 64500, bfd: {}}\n"
)

var routerConfigs = []routerConfig{
	{name: "FRR", file: "frr.conf", upstream: frr{}, neighbour: "10.0.1.%d", deep: true},
	{name: "FRR MD5", file: "frr.conf", upstream: frr{}, neighbour: "10.0.1.%d", comment: "password", heraldComment: "passwordFile"},
	{name: "FRR GTSM", file: "frr.conf", upstream: frr{}, neighbour: "10.0.1.%d", comment: "ttl-security", heraldComment: "ttlSecurity", singleHop: true},
	{name: "FRR RFC 8950", file: "frr-rfc8950.conf", upstream: frr{}, neighbour: "fd00:1::%d", peers: overIPv6, deep: true},
	{name: "FRR unnumbered", file: "frr-unnumbered.conf", upstream: frr{}, neighbour: "eth1%d", peers: unnumbered, deep: true},
	{name: "BIRD", file: "bird.conf", upstream: bird{}, neighbour: "m%d", deep: true},
	{name: "BIRD MD5", file: "bird.conf", upstream: bird{}, neighbour: "m%d", comment: "password", heraldComment: "passwordFile"},
	{name: "BIRD GTSM", file: "bird.conf", upstream: bird{}, neighbour: "m%d", comment: "security", heraldComment: "ttlSecurity", singleHop: true},
	{name: "BIRD RFC 8950", file: "bird-rfc8950.conf", upstream: bird{}, neighbour: "m%d", peers: overIPv6, deep: true},
}

// masterData returns the user-data of the masters, with an additional VIP that the
// router does not know.
func (c routerConfig) masterData(t *testing.T) userData {
	t.Helper()
	u := readUserData(t, "master-bgp.yaml", masterWords(t))
	u = u.replace(t, heraldYAML, "\nchecks:\n", "\n- {name: stray, addresses: [10.99.0.11, \"fd00:99::11\"], announce: bgp, checks: [apiserver]}\nchecks:\n")
	text := u.file(t, heraldYAML)
	want := text
	if c.heraldComment != "" {
		want = uncomment(t, want, c.heraldComment)
	}
	if c.singleHop {
		want = strings.ReplaceAll(want, "bfd: {}", "bfd: {multihop: false}")
	}
	if c.peers != "" {
		before, _, _ := strings.Cut(want, "  peers:\n")
		want = before + "  peers:" + c.peers
	}
	want = strings.NewReplacer("bfd: {}", "bfd: {interval: 300ms}", "bfd: {", "bfd: {interval: 300ms, ").Replace(want)
	u = u.replace(t, heraldYAML, text, want)
	u.Files = append(u.Files, userFile{Path: "/etc/herald/bgp-password", Content: "sesame\n", Permissions: "0600"})
	return u
}

// neighbours returns the router's names for a master, in each of its sessions.
func (c routerConfig) neighbours(m site.Master) []string {
	name := fmt.Sprintf(c.neighbour, m.Number)
	switch {
	case c.peers != "":
		return []string{name}
	case c.upstream == bird{}:
		return []string{name, name + "_6"}
	}
	return []string{name, fmt.Sprintf("fd00:1::%d", m.Number)}
}

// TestRouterConfig runs every configuration of manifests/routers with the masters of
// the user-data. The VIP has three next hops, another address none, the router sends
// no routes back, and BFD monitors the path. The detailed tests check that BFD detects
// a power loss and that GRACEFUL_SHUTDOWN moves connections to others. A flap of the
// router's own link must keep all masters in the kernel's route. BFD has 300 ms
// instead of 50, for busy machines.
func TestRouterConfig(t *testing.T) {
	for _, c := range routerConfigs {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			conf := strings.ReplaceAll(readRouter(t, c.file), "interval 50", "interval 300")
			if c.comment != "" {
				conf = uncomment(t, conf, c.comment)
			}
			s := newMachines(t, c.masterData(t).image(t), c.upstream.image(t, conf))
			showOnFailure(t, c.upstream, s.r1().Node)
			s.bootAll(t)
			s.spreadsOver(t, 3)
			c.accepts(t, s)
			if c.deep {
				c.powerLoss(t, s)
				c.linkFlap(t, s)
				c.gracefulShutdown(t, s)
			}
		})
	}
}

// bootAll boots the router and all masters, with ready apiservers.
func (s *machines) bootAll(t *testing.T) {
	t.Helper()
	for _, name := range []string{"r1", "m1", "m2", "m3"} {
		site.PowerOn(t, s.Node(name))
	}
	for _, m := range s.Masters {
		s.kubeadm(t, m)
		s.ready(m)
	}
}

// spreadsOver waits until the router's kernel has this many next hops for the VIP, and
// still has them a while later: a changing route passes through intermediate states.
func (s *machines) spreadsOver(t *testing.T, want int) {
	t.Helper()
	const looks = 10 // longer than Herald takes to change a route
	var steady int
	site.Eventually(t, site.Soon, func() error {
		steady++
		for _, vip := range []string{site.VIP4, site.VIP6} {
			got, err := ways(s.r1().Node, vip)
			if err == nil && got != want {
				err = fmt.Errorf("r1 spreads %s over %d next hops, want %d", vip, got, want)
			}
			if err != nil {
				steady = 0
				return err
			}
		}
		return site.ErrorIf(steady < looks, "r1 spreads over %d next hops, but has not for long", want)
	})
}

// accepts checks the routes that the router accepts and sends.
func (c routerConfig) accepts(t *testing.T, s *machines) {
	t.Helper()
	stray := []string{"10.99.0.11", "fd00:99::11"}
	for _, m := range s.Masters {
		m.Shows(t, func(status admin.Status) error {
			var sent int
			for _, p := range status.Peers {
				if p.BFD == nil || p.BFD.State != bfd.Up || p.BFD.DetectionTime.Seconds() != 0.9 {
					return fmt.Errorf("BFD of %s with %s: %+v", m, p.Name, p.BFD)
				}
				for _, a := range stray {
					if slices.Contains(p.Advertised, site.HostPrefix(a)) {
						sent++
					}
				}
			}
			return site.ErrorIf(sent != len(stray), "%s has sent %d of %q", m, sent, stray)
		})
		for _, n := range c.neighbours(m) {
			if sent := c.upstream.sent(t, s.r1().Node, n); sent != 0 {
				t.Errorf("%s has been sent %d routes", n, sent)
			}
		}
	}
	for _, a := range stray {
		if n, err := ways(s.r1().Node, a); n != 0 || err != nil {
			t.Errorf("the router accepted %s, which is not in its list (%d next hops, %v)", a, n, err)
		}
	}
	s.serves(t, s.Node("c1"))
}

// powerLoss takes the power of a master, and gives it back.
func (c routerConfig) powerLoss(t *testing.T, s *machines) {
	t.Helper()
	m := s.Masters[1]
	s.loses(t, m)
	s.spreadsOver(t, 2)
	for _, n := range c.neighbours(m) {
		if why := c.upstream.reset(t, s.r1().Node, n); !strings.Contains(why, "BFD") {
			t.Errorf("the router lost %s for another reason than BFD: %s", n, why)
		}
	}
	s.serves(t, s.Node("c1"))
	site.PowerOn(t, m.Base())
	s.kubeadm(t, m)
	s.ready(m)
	s.spreadsOver(t, 3)
}

// linkFlap takes the carrier of the router's own link to a master, or to all of them,
// and gives it back.
func (c routerConfig) linkFlap(t *testing.T, s *machines) {
	t.Helper()
	end, left := "lan", 0
	if c.peers == unnumbered {
		end, left = "m2", 2
	}
	for range 2 {
		site.Must(t, s.Link("r1", end).Down())
		s.spreadsOver(t, left)
		site.Must(t, s.Link("r1", end).Heal())
		s.spreadsOver(t, 3)
	}
	s.serves(t, s.Node("c1"))
}

// gracefulShutdown makes a master announce GRACEFUL_SHUTDOWN. FRR replaces its routes
// in place meanwhile.
func (c routerConfig) gracefulShutdown(t *testing.T, s *machines) {
	t.Helper()
	m := s.Masters[0]
	routes := site.WatchRoutes(t, s.r1().Node)
	text := s.config(t, m)
	s.configure(t, m, strings.Replace(text, "\n  asn: 64512\n", "\n  asn: 64512\n  communities: [graceful-shutdown]\n", 1))
	s.spreadsOver(t, 2)
	// It is no withdrawal. On a busy machine BFD may take the sessions down, and up again.
	m.Shows(t, func(status admin.Status) error {
		for _, p := range status.Peers {
			if p.State != "established" || len(p.Advertised) == 0 {
				return fmt.Errorf("%s sends no routes to %s", m, p.Name)
			}
		}
		for _, vip := range []string{site.VIP4, site.VIP6} { // Herald also sends the worst MED, which alone would suffice for these routers
			table, err := c.upstream.table(t, s.r1().Node, vip)
			if err != nil {
				return err
			}
			if !regexp.MustCompile(`(localpref|local_pref:) 0\b`).MatchString(table) {
				return fmt.Errorf("the router does not honour GRACEFUL_SHUTDOWN:\n%s", table)
			}
		}
		return nil
	})
	s.configure(t, m, text)
	s.spreadsOver(t, 3)
	for _, change := range routes.Since() {
		if (c.upstream == frr{}) && len(change.Now) == 0 {
			t.Errorf("the router had no route to %s for a moment", change.Prefix)
		}
	}
}

// TestRouterLimit has a list of VIPs that is too wide, and a master that announces
// more than the router's limit of 16 routes. That master loses its sessions, and
// reports why.
func TestRouterLimit(t *testing.T) {
	for _, test := range []struct {
		name, file string
		upstream   upstream
		wide       *strings.Replacer
	}{
		{"FRR", "frr.conf", frr{}, strings.NewReplacer("permit 10.99.0.10/32", "permit 10.99.0.0/16 ge 32", "permit fd00:99::10/128", "permit fd00:99::/32 ge 128")},
		{"BIRD", "bird.conf", bird{}, strings.NewReplacer("[10.99.0.10/32]", "[10.99.0.0/16{32,32}]", "[fd00:99::10/128]", "[fd00:99::/32{128,128}]")},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			u := readUserData(t, "master-bgp.yaml", masterWords(t))
			s := newMachines(t, u.image(t), test.upstream.image(t, test.wide.Replace(readRouter(t, test.file))))
			showOnFailure(t, test.upstream, s.r1().Node)
			s.bootAll(t)
			s.spreadsOver(t, 3)

			m := s.Masters[2]
			var more []string
			for i := range 20 {
				more = append(more, fmt.Sprintf("10.99.1.%d", i), fmt.Sprintf(`"fd00:99:1::%d"`, i))
			}
			text := s.config(t, m)
			s.configure(t, m, strings.Replace(text, "[10.99.0.10,", "["+strings.Join(more, ", ")+", 10.99.0.10,", 1))
			m.Shows(t, func(status admin.Status) error {
				for _, p := range status.Peers {
					if p.State == "established" {
						return fmt.Errorf("%s reports peer %s as %s: %q", m, p.Name, p.State, p.Reason)
					}
				}
				// The router logs it once. For a session that it ends while writing, it may not
				// log it; then it refuses each attempt.
				said := strings.Contains(site.ReadFile(t, m.Speaker().Log()), "maximum number of prefixes reached")
				return site.ErrorIf(!said, "%s does not report the reason", m)
			})
			s.spreadsOver(t, 2)
			s.serves(t, s.Node("c1"))
		})
	}
}

// config returns a master's configuration.
func (s *machines) config(t *testing.T, m site.Master) string {
	t.Helper()
	return site.MustRun(t, m.Speaker(), "cat", heraldYAML)
}

// configure gives a master's speaker another configuration.
func (s *machines) configure(t *testing.T, m site.Master, text string) {
	t.Helper()
	if text == s.config(t, m) {
		t.Fatal("the configuration does not change")
	}
	site.MustRun(t, m.Speaker(), "sh", "-c", `printf %s "$1" > `+heraldYAML, "sh", text)
	site.Must(t, m.Speaker().Daemon("herald").Signal(unix.SIGHUP))
}

// upstream is a router with one of the configurations of manifests/routers.
type upstream interface {
	// image returns the router's image with this configuration.
	image(t *testing.T, conf string) lab.Image
	// reset returns the router's own reason for the last loss of its session with a neighbour.
	reset(t *testing.T, n *lab.Node, neighbour string) string
	// sent returns how many routes a neighbour has been sent.
	sent(t *testing.T, n *lab.Node, neighbour string) int
	// table returns the router's routes to a VIP, with all attributes.
	table(t *testing.T, n *lab.Node, vip string) (string, error)
	// commands returns the commands that show the router's state after a failed test.
	commands() [][]string
}

// showOnFailure prints the router's state if the test fails.
func showOnFailure(t *testing.T, u upstream, n *lab.Node) {
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for _, argv := range append(u.commands(), []string{"ip", "route"}, []string{"ip", "-6", "route"}) {
			ctx, cancel := context.WithTimeout(context.Background(), site.Soon)
			out, err := n.Run(ctx, argv...)
			cancel()
			t.Logf("%q on %s: %v\n%s", argv, n.Name(), err, out)
		}
	})
}

// readRouter reads a file of manifests/routers.
func readRouter(t *testing.T, name string) string {
	t.Helper()
	return site.ReadFile(t, routers+name)
}

// uncomment turns comments that contain this word into configuration. It fails if there are none.
func uncomment(t *testing.T, text, word string) string {
	t.Helper()
	comment := regexp.MustCompile(`(?m)^( *)[!#] (.*\b` + regexp.QuoteMeta(word) + `\b.*[^:])$`)
	if !comment.MatchString(text) {
		t.Fatalf("no comment has %q", word)
	}
	return comment.ReplaceAllString(text, "$1$2")
}

// frr is FRR, as set up by a router's user-data. Its neighbours are named by address or interface.
type frr struct{}

func (frr) image(t *testing.T, conf string) lab.Image {
	u := readUserData(t, "router.yaml", nil)
	return u.replace(t, "/etc/frr/frr.conf", u.file(t, "/etc/frr/frr.conf"), conf).image(t)
}

func (frr) reset(t *testing.T, n *lab.Node, neighbour string) string {
	t.Helper()
	got := site.Get[site.Neighbor](t)(site.Router{Node: n}.Neighbor(t, neighbour))
	return got.LastReset + " " + got.LastNotification
}

func (frr) sent(t *testing.T, n *lab.Node, neighbour string) (total int) {
	t.Helper()
	for _, family := range []string{"ipv4", "ipv6"} {
		var table struct{ TotalPrefixCounter int }
		site.Must(t, site.Router{Node: n}.Show(t, &table, "bgp %s unicast neighbors %s advertised-routes", family, neighbour))
		total += table.TotalPrefixCounter
	}
	return total
}

func (frr) table(t *testing.T, n *lab.Node, vip string) (string, error) {
	t.Helper()
	return site.Run(t, n, "vtysh", "-c", fmt.Sprintf("show bgp %s unicast %s", site.Family(vip), site.HostPrefix(vip)))
}

func (frr) commands() [][]string {
	return [][]string{
		{"vtysh", "-c", "show bgp summary"}, {"vtysh", "-c", "show bgp ipv4"}, {"vtysh", "-c", "show bgp ipv6"},
		{"vtysh", "-c", "show bfd peers brief"},
	}
}

// bird is BIRD 2, with the same sysctls. Its neighbours are named by protocol.
type bird struct{}

func (bird) image(t *testing.T, conf string) lab.Image {
	t.Helper()
	const sysctls = "/etc/sysctl.d/90-herald-router.conf"
	return userData{
		Files:    []userFile{{Path: "/etc/bird/bird.conf", Content: conf}, {Path: sysctls, Content: readRouter(t, "sysctl.conf")}},
		Commands: [][]string{{"sysctl", "-p", sysctls}, {"systemctl", "restart", "bird.service"}},
	}.image(t)
}

func (bird) reset(t *testing.T, n *lab.Node, neighbour string) string {
	t.Helper()
	return site.MustRun(t, n, "birdc", "show", "protocols", "all", neighbour)
}

func (b bird) sent(t *testing.T, n *lab.Node, neighbour string) (total int) {
	t.Helper()
	list := regexp.MustCompile(`(\d+) exported`).FindAllStringSubmatch(b.reset(t, n, neighbour), -1)
	if len(list) == 0 {
		t.Fatalf("birdc does not report the routes sent to %s", neighbour)
	}
	for _, match := range list {
		count := site.Get[int](t)(strconv.Atoi(match[1]))
		total += count
	}
	return total
}

func (bird) table(t *testing.T, n *lab.Node, vip string) (string, error) {
	t.Helper()
	return site.Run(t, n, "birdc", "show", "route", site.HostPrefix(vip).String(), "all")
}

func (bird) commands() [][]string {
	return [][]string{{"birdc", "show", "protocols", "all"}, {"birdc", "show", "route", "all"}, {"birdc", "show", "bfd", "sessions"}}
}

// ways returns the number of next hops of the kernel's route to a VIP, of any family.
func ways(n *lab.Node, vip string) (int, error) {
	list, err := site.KernelRoutes(n, vip)
	if err != nil || len(list) == 0 {
		return 0, err
	}
	if len(list) > 1 {
		return 0, fmt.Errorf("%s has %d routes to %s", n.Name(), len(list), vip)
	}
	return max(1, len(list[0].MultiPath)), nil
}
