package lab

import "github.com/herald-vip/herald/testenv/clab"

// birdSocket is where birdc looks for BIRD.
const birdSocket = "/run/bird/bird.ctl"

// BIRD is the image of a BIRD 2 router, run by the host's own BIRD (Debian's
// package bird2), configured from /etc/bird/bird.conf, which is the node's bind.
func BIRD(clab.Node) (Program, error) {
	return Program{
		Prepare: [][]string{{"install", "-d", "/run/bird"}},
		Daemons: []Daemon{{
			Name:   "bird",
			Argv:   []string{"/usr/sbin/bird", "-f", "-c", "/etc/bird/bird.conf", "-s", birdSocket},
			Socket: birdSocket,
		}},
	}, nil
}
