//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/herald-vip/herald/testenv/lab"
)

// upstream is a router with one of the configurations of manifests/routers.
type upstream interface {
	// image is the router, with this configuration.
	image(t *testing.T, conf string) lab.Image
	// reset is why the router last lost its session with a neighbour, in its own words.
	reset(t *testing.T, n *lab.Node, neighbour string) string
	// sent is how many routes a neighbour has been sent.
	sent(t *testing.T, n *lab.Node, neighbour string) int
}

// readRouter reads a file of manifests/routers.
func readRouter(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(routers + name)
	must(t, err)
	return string(data)
}

// uncomment turns comments that have this word into configuration. There must be some.
func uncomment(t *testing.T, text, word string) string {
	t.Helper()
	comment := regexp.MustCompile(`(?m)^( *)[!#] (.*\b` + regexp.QuoteMeta(word) + `\b.*[^:])$`)
	if !comment.MatchString(text) {
		t.Fatalf("no comment has %q", word)
	}
	return comment.ReplaceAllString(text, "$1$2")
}

// frr is FRR, as the user-data of a router sets it up. Its neighbours are named
// by address or interface.
type frr struct{}

func (frr) image(t *testing.T, conf string) lab.Image {
	u := readUserData(t, "router.yaml", nil)
	return u.replace(t, "/etc/frr/frr.conf", u.file(t, "/etc/frr/frr.conf"), conf).image(t)
}

func (frr) reset(t *testing.T, n *lab.Node, neighbour string) string {
	t.Helper()
	got, err := router{n}.neighbor(t, neighbour)
	must(t, err)
	return got.LastReset + " " + got.LastNotification
}

func (frr) sent(t *testing.T, n *lab.Node, neighbour string) (total int) {
	t.Helper()
	for _, family := range []string{"ipv4", "ipv6"} {
		var table struct{ TotalPrefixCounter int }
		must(t, router{n}.show(t, &table, "bgp %s unicast neighbors %s advertised-routes", family, neighbour))
		total += table.TotalPrefixCounter
	}
	return total
}

// bird is BIRD 2, with the sysctls of the other. Its neighbours are named by protocol.
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
	out, err := run(t, n, "birdc", "show", "protocols", "all", neighbour)
	must(t, err)
	return out
}

func (bird) sent(t *testing.T, n *lab.Node, neighbour string) (total int) {
	t.Helper()
	for _, channel := range []string{"ipv4", "ipv6"} {
		out, err := run(t, n, "birdc", "show", "route", "table", map[string]string{"ipv4": "master4", "ipv6": "master6"}[channel], "export", neighbour, "count")
		must(t, err)
		match := regexp.MustCompile(`(?m)^(\d+) of \d+ routes`).FindStringSubmatch(out)
		if match == nil {
			if strings.Contains(out, "No") || strings.Contains(out, "not") { // a session without that family
				continue
			}
			t.Fatalf("birdc says %q", out)
		}
		count, err := strconv.Atoi(match[1])
		must(t, err)
		total += count
	}
	return total
}

// ways is over how many next hops the kernel routes to a VIP, of whichever family they are.
func ways(n *lab.Node, vip string) (int, error) {
	list, err := kernelRoutes(n, vip)
	if err != nil || len(list) == 0 {
		return 0, err
	}
	if len(list) > 1 {
		return 0, fmt.Errorf("%s has %d routes to %s", n.Name(), len(list), vip)
	}
	return max(1, len(list[0].MultiPath)), nil
}
