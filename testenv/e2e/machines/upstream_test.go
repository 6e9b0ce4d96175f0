//go:build e2e

package machines

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/lab"
)

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
	got, err := site.Router{Node: n}.Neighbor(t, neighbour)
	site.Must(t, err)
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
		count, err := strconv.Atoi(match[1])
		site.Must(t, err)
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
