package lab

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/herald-vip/herald/testenv/clab"
)

// Paths of Debian's package and of FRR's own image.
const (
	frrDaemons = "/etc/frr/daemons"
	frrBin     = "/usr/lib/frr/"
	frrRun     = "/run/frr"
)

// FRR is the image of an FRR router. It runs the host's FRR (Debian package frr): the
// daemons listed in /etc/frr/daemons, configured from /etc/frr/frr.conf. The node must
// bind both files.
func FRR(n clab.Node) (Program, error) {
	var file []byte
	for _, b := range n.Binds {
		if b.Target != frrDaemons {
			continue
		}
		var err error
		if file, err = os.ReadFile(b.Source); err != nil {
			return Program{}, err
		}
	}
	p := Program{
		Prepare: [][]string{{"install", "-d", "-o", "frr", "-g", "frr", frrRun}},
		// Each daemon receives its part of the configuration over its socket.
		Finish: [][]string{{"vtysh", "-b"}},
	}
	for _, d := range parseDaemons(file) {
		argv := []string{frrBin + d.name, "--log", "stdout", "--log-level", "informational"}
		p.Daemons = append(p.Daemons, Daemon{
			Name:   d.name,
			Argv:   append(argv, d.options...),
			Socket: fmt.Sprintf("%s/%s.vty", frrRun, d.name),
		})
	}
	return p, nil
}

// frrDaemon is a daemon that /etc/frr/daemons starts.
type frrDaemon struct {
	name    string
	options []string
}

// parseDaemons reads /etc/frr/daemons: lines such as `bgpd=yes` and `bgpd_options="-A
// 127.0.0.1"`. zebra and staticd always run, zebra first because the others connect to
// it when they start.
func parseDaemons(file []byte) []frrDaemon {
	list := []frrDaemon{{name: "zebra"}, {name: "staticd"}}
	options := make(map[string][]string)
	for lines := bufio.NewScanner(bytes.NewReader(file)); lines.Scan(); {
		key, value, ok := strings.Cut(strings.TrimSpace(lines.Text()), "=")
		if !ok || strings.HasPrefix(key, "#") {
			continue
		}
		value = strings.Trim(value, `"'`)
		if name, ok := strings.CutSuffix(key, "_options"); ok {
			options[name] = slices.DeleteFunc(strings.Fields(value), func(o string) bool {
				return o == "-d" || o == "--daemon" // it would leave the foreground
			})
			continue
		}
		known := slices.ContainsFunc(list, func(d frrDaemon) bool { return d.name == key })
		if value == "yes" && !known && strings.HasSuffix(key, "d") { // not vtysh_enable and the like
			list = append(list, frrDaemon{name: key})
		}
	}
	for i := range list {
		list[i].options = options[list[i].name]
	}
	return list
}

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
