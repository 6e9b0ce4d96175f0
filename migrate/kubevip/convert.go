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

// maxList limits a list of addresses or peers; the rest counts as part of the last item, which is then invalid.
const maxList = 1000

// metricsPort is Herald's default. With kube-vip's port Herald could not start while both run, and a
// reload cannot change it later.
const metricsPort = "9474"

// Convert converts a manifest that runs kube-vip, of any number of YAML documents, or a listing of its
// environment, one NAME=VALUE a line. It returns an error if the file cannot be read.
func Convert(files []migrate.File, o migrate.Options) (*migrate.Result, error) {
	d, table := migrate.NewDraft(o.File), Table()
	instances, err := readInstances(files[0], table, &d.Notes)
	if err != nil {
		return nil, err
	}
	if len(instances) == 0 {
		d.ToDo(0, "", "does not run kube-vip: no name or image of a container contains kube-vip, and no line sets a variable")
	}
	for _, in := range instances {
		k := converter{Draft: d, options: o, table: table, given: map[string]setting{}}
		k.read(in)
		switch {
		case !k.on("cp_enable"):
			d.Note(in.line, "cp_enable", "is not true: this kube-vip announces no control plane, and nothing else is converted")
		case len(d.VIPs) > 0:
			d.ToDo(in.line, "cp_enable", "a second kube-vip of the control plane: migrate it separately")
		default:
			k.convert()
		}
		k.leftOver()
	}
	return d.Result("kube-vip"), nil
}

// converter converts one instance.
type converter struct {
	*migrate.Draft
	options migrate.Options
	table   []migrate.Row
	given   map[string]setting // by name; the last value counts
}

// read stores the settings by name. It notes unknown ones; a listing may have variables of other programs.
func (k *converter) read(in instance) {
	for _, s := range in.settings {
		row, known := k.row(s.name)
		switch {
		case known && s.value == "" && s.from == "":
			// counts as absent
		case known && row.Boolean && s.from == "" && !isBool(s.value):
			k.ToDo(s.line, s.name, "%s is neither true nor false", migrate.Quoted(s.value))
		case known:
			k.given[s.name] = s
		case !in.listing || strings.HasPrefix(s.name, "vip_") || strings.HasPrefix(s.name, "bgp_"):
			k.Note(s.line, s.name, "is an unknown setting: not carried over")
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

// get returns the value of a setting; empty if there is none.
func (k *converter) get(name string) string { return k.given[name].value }

// line returns the line of a setting; 0 if there is none.
func (k *converter) line(name string) int { return k.given[name].line }

// note adds a note on a setting; toDo adds one with work for the user.
func (k *converter) note(name, format string, args ...any) {
	k.Note(k.line(name), name, format, args...)
}

func (k *converter) toDo(name, format string, args ...any) {
	k.ToDo(k.line(name), name, format, args...)
}

// addr parses the address of a setting. It notes the complaint on an invalid one.
func (k *converter) addr(name, value, complaint string) netip.Addr {
	addr, err := netip.ParseAddr(value)
	if value != "" && err != nil {
		k.toDo(name, complaint, migrate.Quoted(value))
	}
	return addr
}

// number parses the number of a setting, as [migrate.Notes.Number] does.
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

// at records the setting that the field at path comes from.
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

// in reports whether the setting that others need is set and not false.
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
			k.toDo("bgp_enable", "kube-vip uses either vip_arp or bgp_enable, and both are set: announce: arp is written")
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
	if k.given["vip_nodename"].from == "" { // else the node's own name
		k.NodeName = k.get("vip_nodename")
		k.at("nodeName", "vip_nodename")
	}
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
		k.note("prometheus_server", "Herald's metrics have other names and port %s, so that both can run: adapt the monitoring", metricsPort)
	}
}

// balance adds a balancer in place of IPVS: the holder of the VIP spreads connections over all masters.
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
	k.Comment(path, "The members with a healthy apiserver, at their addresses in election.members.")
}

// addresses parses the addresses of the VIP. It leaves them to the user if one is invalid.
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
				what += ": " + migrate.Quoted(s) + " is not one"
			}
			k.Leave("vips[0].addresses", cmp.Or(k.line(source), k.line("cp_enable")), what, "addresses: [ADDRESS]")
			return nil
		}
	}
	return addrs
}

// check adds the check of kube-vip, or else that of the local apiserver.
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

// refresh converts the interval of gratuitous ARP, within Herald's limits.
func (k *converter) refresh() {
	rate := time.Duration(k.number("vip_arpRate", 1, math.MaxInt32, 0)) * time.Millisecond
	if rate == 0 {
		return
	}
	k.ARP.Refresh = min(max(rate, time.Second), time.Hour)
	k.at("arp.refresh", "vip_arpRate")
	if rate != k.ARP.Refresh {
		k.note("vip_arpRate", "Herald accepts 1s to 1h: %s is written", k.ARP.Refresh)
	}
	k.Comment("arp.refresh", "As before. Herald's default is 60s: it announces seven times when it takes the VIP.")
}
