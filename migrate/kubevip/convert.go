// Package kubevip converts manifests that run kube-vip.
package kubevip

import (
	"cmp"
	"maps"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/internal/yaml"
	"github.com/herald-vip/herald/migrate"
)

// maxList is more addresses or peers than a kube-vip has; what is beyond is refused as part of the last.
const maxList = 1000

// metricsPort is Herald's usual one. With kube-vip's it could not start beside it, and
// a reload cannot change it afterwards.
const metricsPort = "9474"

// Convert converts a manifest that runs kube-vip, of any number of YAML
// documents, or a listing of its environment, one NAME=VALUE a line. The error
// says why the file cannot be read.
func Convert(data []byte, o migrate.Options) (*migrate.Result, error) {
	d, table := migrate.NewDraft(o.File), Table()
	instances, err := readInstances(data, table, &d.Notes)
	if err != nil {
		return nil, err
	}
	if len(instances) == 0 {
		d.ToDo(0, "", "runs no kube-vip: no container's name or image has that in it, and no line sets a variable")
	}
	for _, in := range instances {
		k := converter{Draft: d, options: o, table: table, given: map[string]setting{}}
		k.read(in)
		switch {
		case !k.on("cp_enable"):
			d.Note(in.line, "cp_enable", "is not true: this kube-vip announces no control plane, and nothing else is converted")
		case len(d.VIPs) > 0:
			d.ToDo(in.line, "cp_enable", "a second kube-vip of the control plane: migrate it by itself")
		default:
			k.convert()
		}
		k.leftOver()
	}
	return d.Result("kube-vip"), nil
}

// converter converts one.
type converter struct {
	*migrate.Draft
	options migrate.Options
	table   []migrate.Row
	given   map[string]setting // by name; the last one counts
}

// read keeps the settings by name. What is none of kube-vip's is noted, except in a listing, which has more.
func (k *converter) read(in instance) {
	for _, s := range in.settings {
		row, known := k.row(s.name)
		switch {
		case known && s.value == "" && s.from == "":
			// as good as absent
		case known && row.Boolean && s.from == "" && !isBool(s.value):
			k.ToDo(s.line, s.name, "%s is neither true nor false", migrate.Quoted(s.value))
		case known:
			k.given[s.name] = s
		case !in.listing || strings.HasPrefix(s.name, "vip_") || strings.HasPrefix(s.name, "bgp_"):
			k.Note(s.line, s.name, "is no setting that is known here: not carried over")
		}
	}
}

func (k *converter) row(name string) (row migrate.Row, known bool) {
	return migrate.Find(k.table, "", func(n string) bool { return n == name })
}

func isBool(s string) bool {
	_, err := strconv.ParseBool(s)
	return err == nil
}

// get is the value of a setting, empty if there is none.
func (k *converter) get(name string) string { return k.given[name].value }

// line is where a setting is, 0 if it is nowhere.
func (k *converter) line(name string) int { return k.given[name].line }

// note says what is not carried over of a setting, and toDo what has to be done by hand.
func (k *converter) note(name, format string, args ...any) {
	k.Note(k.line(name), name, format, args...)
}

func (k *converter) toDo(name, format string, args ...any) {
	k.ToDo(k.line(name), name, format, args...)
}

// addr is the address that a setting has; not a valid one if there is none, or it is none, which the complaint says.
func (k *converter) addr(name, value, complaint string) netip.Addr {
	addr, err := netip.ParseAddr(value)
	if value != "" && err != nil {
		k.toDo(name, complaint, migrate.Quoted(value))
	}
	return addr
}

// number is the one in a setting, as [migrate.Notes.Number].
func (k *converter) number(name string, least, most, otherwise uint32) uint32 {
	s := migrate.Setting{Name: name, Value: k.get(name)}
	if s.Value != "" {
		s.Line = k.line(name)
	}
	return k.Number(s, least, most, otherwise)
}

func (k *converter) on(name string) bool {
	b, _ := strconv.ParseBool(k.get(name))
	return b
}

// at notes where in the input the field at path comes from.
func (k *converter) at(path yaml.Path, name string) { k.Origins[path] = k.line(name) }

// leftOver notes the settings that have no counterpart.
func (k *converter) leftOver() {
	for _, name := range slices.Sorted(maps.Keys(k.given)) {
		s := k.given[name]
		row, _ := k.row(name)
		switch {
		case s.from != "" && name != "vip_nodename":
			k.ToDo(s.line, name, "its value is not in the file: %s", migrate.Shown(s.from))
		case row.Becomes != "" || row.Boolean && !k.on(name) || slices.Contains(row.Idle, s.value):
		case row.Needs == "" || k.in(row.Needs):
			k.Add(s.line, row.ToDo, name, "%s", row.Text)
		}
	}
}

// in reports whether a setting that others need has been made.
func (k *converter) in(name string) bool {
	s := k.get(name)
	return s != "" && (!isBool(s) || k.on(name))
}

func (k *converter) convert() {
	v := config.VIP{Name: "control-plane", Checks: []string{"apiserver"}, Interface: k.get("vip_interface")}
	source := "address"
	if k.get(source) == "" {
		source = "vip_address"
	}
	switch {
	case k.on("vip_arp"):
		v.Announce = config.AnnounceARP
		if k.on("bgp_enable") {
			k.toDo("bgp_enable", "kube-vip takes one of vip_arp and bgp_enable, and this has both: announce: arp is written")
		}
	case k.on("bgp_enable"):
		v.Announce = config.AnnounceBGP
		if v.Interface == "lo" {
			v.Interface = "" // the default
		}
	case k.on("vip_routingtable"):
		v.Announce, v.Interface, v.Kernel = config.AnnounceKernel, "", new(config.Table)
		yaml.SetDefaults(v.Kernel)
		v.Kernel.Table = int(k.number("vip_routingtableid", 1, math.MaxUint16, usualTable))
	default:
		k.Leave("vips[0].announce", k.line("cp_enable"), "bgp, kernel or arp: none of vip_arp, vip_routingtable and bgp_enable is true", "announce: arp")
	}
	v.Addresses = k.addresses(source)
	path := k.AddVIP(v, k.line(source))
	k.at(path+".interface", "vip_interface")
	k.check()
	k.nodeName()
	switch v.Announce {
	case config.AnnounceARP:
		k.Elect(k.line("vip_arp"), k.options.Members, k.options)
		k.refresh()
		k.balance()
	case config.AnnounceBGP:
		k.bgp()
		if k.on("lb_enable") {
			k.note("lb_enable", "with announce: bgp the routers spread connections: no balancer is written")
		}
	}
	if listen := k.get("prometheus_server"); listen != "" {
		k.Metrics.Listen = listen
		if host, _, err := net.SplitHostPort(listen); err == nil {
			k.Metrics.Listen = net.JoinHostPort(host, metricsPort)
		}
		k.at("metrics.listen", "prometheus_server")
		k.note("prometheus_server", "Herald's metrics have other names, and port %s, since kube-vip keeps its own while both run: change what reads them", metricsPort)
	}
}

// balance has the holder of the VIP spread connections over all masters, as IPVS did.
func (k *converter) balance() {
	if !k.on("lb_enable") {
		return
	}
	port := func(name string) uint16 { return uint16(k.number(name, 1, math.MaxUint16, 6443)) }
	path := k.AddBalancer(balancer.Config{
		Name:     "apiserver",
		Listen:   []balancer.Listener{{VIP: k.VIPs[0].Name, Port: port("lb_port")}},
		Backends: balancer.Backends{Members: &balancer.Members{Port: port("port"), Checks: []string{k.Checks[0].Name}}},
	}, k.line("lb_enable"))
	k.Comment(path, "The members whose apiserver is healthy, at the addresses of the election.")
}

// addresses are those of the VIP; what is none is to be filled in.
func (k *converter) addresses(source string) []netip.Addr {
	var addrs []netip.Addr
	for _, s := range strings.SplitN(k.get(source), ",", maxList) {
		s = strings.TrimSpace(s)
		addr, _ := migrate.ParseAddr(s)
		switch {
		case addr.IsValid() && !slices.Contains(addrs, addr):
			addrs = append(addrs, addr)
		case !addr.IsValid():
			what := "the VIP's addresses"
			if s != "" {
				what += ": " + migrate.Quoted(s) + " is none"
			}
			k.Leave("vips[0].addresses", cmp.Or(k.line(source), k.line("cp_enable")), what, "addresses: [ADDRESS]")
			return nil
		}
	}
	return addrs
}

// check asks what kube-vip asked, or else the local apiserver.
func (k *converter) check() {
	const url = "control_plane_health_check_address"
	c, source := migrate.DefaultCheck(cmp.Or(k.get("port"), "6443")), "port"
	switch {
	case k.get(url) != "":
		c.HTTP = &health.HTTP{URL: k.get(url), CAFile: k.get("control_plane_health_check_ca_path")}
		source = url
	case k.get("kubernetes_addr") != "":
		c.HTTP.URL = strings.TrimSuffix(k.get("kubernetes_addr"), "/") + "/readyz"
		source = "kubernetes_addr"
	}
	if strings.HasPrefix(c.HTTP.URL, "http://") {
		c.HTTP.CAFile, c.HTTP.ServerName = "", ""
	}
	path, _ := k.AddCheck(c, k.line(source))
	if source != url {
		k.Comment(path+".http.caFile", migrate.KubeadmPaths)
	}
}

// nodeName carries a name over that the file has; the node's own is the default.
func (k *converter) nodeName() {
	if k.given["vip_nodename"].from == "" {
		k.NodeName = k.get("vip_nodename")
		k.at("nodeName", "vip_nodename")
	}
}

// refresh carries the rate of gratuitous ARP over, if it was asked for, within what Herald takes.
func (k *converter) refresh() {
	rate := time.Duration(k.number("vip_arpRate", 1, math.MaxInt32, 0)) * time.Millisecond
	if rate == 0 {
		return
	}
	k.ARP.Refresh = min(max(rate, time.Second), time.Hour)
	k.at("arp.refresh", "vip_arpRate")
	if rate != k.ARP.Refresh {
		k.note("vip_arpRate", "Herald takes 1s to 1h: %s is written", k.ARP.Refresh)
	}
	k.Comment("arp.refresh", "As it was. Herald's default is 60s: it announces seven times when it takes the VIP.")
}
