package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/herald-vip/herald/testenv/lab"
)

// router is an upstream router of the topology and the client behind it.
type router struct {
	number int
	kind   routerKind
	node   *lab.Node
	client *lab.Node
	routes *vipRoute
	wire   *wire
}

// hop is the address of a master on the link to the router.
func (r *router) hop(master int) netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf("10.%d.%d.1", r.number, master))
}

// routerKind is a make of routers.
type routerKind interface {
	// name is what the results call it.
	name() string
	// configure writes the router's files into dir.
	configure(templates, dir string, c routerConf) error
	// bfdUp counts the BFD sessions that are up.
	bfdUp(ctx context.Context, n *lab.Node) (int, error)
}

// routerConf is what the templates of a router know.
type routerConf struct {
	Masters []int
	BFD     int // interval in milliseconds, 0 for none
}

// frrRouter is FRR.
type frrRouter struct{}

func (frrRouter) name() string { return "FRR" }

func (frrRouter) configure(templates, dir string, c routerConf) error {
	if err := fill(templates, "frr-router.conf.tmpl", dir, "frr.conf", c, 0o644); err != nil {
		return err
	}
	return copyFile(filepath.Join(templates, "daemons"), filepath.Join(dir, "daemons"), 0o644)
}

func (frrRouter) bfdUp(ctx context.Context, n *lab.Node) (int, error) {
	out, err := n.Run(ctx, "vtysh", "-c", "show bfd peers json")
	if err != nil {
		return 0, err
	}
	return frrBFDUp(out)
}

// frrBFDUp counts the sessions that are up in what FRR shows.
func frrBFDUp(out string) (int, error) {
	var peers []struct{ Status string }
	if err := json.Unmarshal([]byte(out), &peers); err != nil {
		return 0, fmt.Errorf("BFD sessions of FRR: %w: %s", err, out)
	}
	up := 0
	for _, p := range peers {
		if p.Status == "up" {
			up++
		}
	}
	return up, nil
}

// birdRouter is BIRD.
type birdRouter struct{}

func (birdRouter) name() string { return "BIRD" }

func (birdRouter) configure(templates, dir string, c routerConf) error {
	return fill(templates, "bird.conf.tmpl", dir, "bird.conf", c, 0o644)
}

func (birdRouter) bfdUp(ctx context.Context, n *lab.Node) (int, error) {
	out, err := n.Run(ctx, "birdc", "show bfd sessions")
	if err != nil {
		return 0, err
	}
	return birdBFDUp(out), nil
}

// birdBFDUp counts the sessions that are up in what BIRD shows: address,
// interface, state and more.
func birdBFDUp(out string) int {
	up := 0
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "Up" {
			up++
		}
	}
	return up
}
