package lab

import "github.com/herald-vip/herald/testenv/clab"

// birdSocket is the default control socket of birdc.
const birdSocket = "/run/bird/bird.ctl"

// BIRD is the image of a BIRD 2 router. It runs the host's BIRD (Debian package bird2)
// with /etc/bird/bird.conf, which the node must bind.
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
