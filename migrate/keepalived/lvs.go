package keepalived

import (
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/migrate"
)

// virtualServer converts a virtual_server of LVS with TCP to a balancer.
func (k *converter) virtualServer(s *migrate.Statement) {
	const cure = "write a balancer by hand, or keep keepalived for it"
	at, ok := place(s.Arg(0), s.Arg(1), 0)
	switch {
	case !ok:
		k.ToDo(s.Line, "virtual_server", "Herald balances an address and a port, and this has neither: %s", cure)
		return
	case slices.ContainsFunc(s.All("protocol"), func(b *migrate.Statement) bool { return !strings.EqualFold(b.Arg(0), "tcp") }):
		k.ToDo(s.Line, "virtual_server", "Herald balances only TCP: keep keepalived for it")
		return
	}
	k.LeftOut(k.table, inServer, s.Block)
	b := balancer.Config{Name: fmt.Sprintf("%s-%d", migrate.DNSName(strings.ReplaceAll(at.Addr().String(), ":", "-"), "server"), at.Port())}
	b.Listen = []balancer.Listener{{Address: at}}
	if i := slices.IndexFunc(k.VIPs, func(v config.VIP) bool { return slices.Contains(v.Addresses, at.Addr()) }); i >= 0 {
		b.Name = fmt.Sprintf("%s-%d", k.VIPs[i].Name, at.Port())
		b.Listen = []balancer.Listener{{VIP: k.VIPs[i].Name, Port: at.Port()}}
	}
	sourceHash := func(b *migrate.Statement) bool { return b.Arg(0) == "sh" }
	if len(s.All("persistence_timeout")) > 0 || slices.ContainsFunc(s.All("lb_algo", "lvs_sched"), sourceHash) {
		b.Method = balancer.SourceHash
	}
	servers := new(balancer.Static)
	checked := false
	for _, line := range s.All("real_server") {
		k.LeftOut(k.table, inReal, line.Block)
		addr, ok := place(line.Arg(0), line.Arg(1), at.Port())
		if !ok {
			k.ToDo(line.Line, "real_server", "is not an address: write it into the backends by hand")
			continue
		}
		if slices.Contains(servers.Addresses, addr) {
			k.Note(line.Line, "real_server", "%s is a backend already: taken once", addr)
			continue
		}
		servers.Addresses = append(servers.Addresses, addr)
		check := k.realCheck(line)
		if checked && !reflect.DeepEqual(check, b.Check) {
			k.ToDo(line.Line, "real_server", "has another check than the first: a balancer has one check for all, and the first one's is written")
			continue
		}
		b.Check, checked = check, true
	}
	path := k.AddBalancer(b, s.Line)
	if len(servers.Addresses) == 0 {
		k.Leave(path+".backends", s.Line, "the servers: none could be read", "backends: {static: {addresses: [\"ADDRESS:PORT\"]}}")
		return
	}
	k.Balancers[len(k.Balancers)-1].Backends.Static = servers
}

// place parses an address and a port, otherwise by default.
func place(addr, port string, otherwise uint16) (netip.AddrPort, bool) {
	a, _ := migrate.ParseAddr(addr)
	n, err := strconv.ParseUint(port, 10, 16)
	if port == "" {
		n, err = uint64(otherwise), nil
	}
	return netip.AddrPortFrom(a, uint16(n)), err == nil && n > 0 && a.IsValid()
}

// realCheck converts the first check of a real_server. Nil is the default, a connection to the backend's port.
func (k *converter) realCheck(server *migrate.Statement) *balancer.Probe {
	checks := server.All("TCP_CHECK", "HTTP_GET", "SSL_GET")
	if len(checks) == 0 {
		return nil
	}
	s := checks[0]
	for _, other := range checks[1:] {
		k.ToDo(other.Line, other.Keyword(), "is another check of the same server: a balancer has one, and the first is written")
	}
	k.LeftOut(k.table, inCheck, s.Block)
	host := balancer.BackendHost
	port := k.Number(s.Setting("connect_port", ""), 1, math.MaxUint16, 0)
	if port > 0 {
		host = fmt.Sprintf("%s:%d", host, port)
	}
	switch {
	case s.Keyword() != "TCP_CHECK":
		return k.get(s, host)
	case port > 0:
		return &balancer.Probe{TCP: &health.TCP{Address: host}}
	}
	return nil
}

// get converts the first url of an HTTP_GET or SSL_GET.
func (k *converter) get(s *migrate.Statement, host string) *balancer.Probe {
	h := &health.HTTP{}
	path := "/"
	for i, u := range s.All("url") {
		if i > 0 {
			k.ToDo(u.Line, "url", "a check has one url, and the first is written")
			continue
		}
		k.LeftOut(k.table, inURL, u.Block)
		path += strings.TrimPrefix(u.Last("path").Arg(0), "/")
		code := u.Last("status_code")
		for _, w := range code.Args() { // ranges have no counterpart
			if n := k.Number(migrate.Setting{Line: code.Line, Name: "status_code", Value: w}, 100, 599, 0); n > 0 {
				h.Status = append(h.Status, int(n))
			}
		}
	}
	h.URL = "http://" + host + path
	if s.Keyword() == "SSL_GET" {
		h.URL, h.InsecureSkipVerify = "https://"+host+path, true // as keepalived, which verifies nothing
		k.Note(s.Line, "SSL_GET", "accepts any certificate, as keepalived does: set caFile and serverName of the check instead")
	}
	return &balancer.Probe{HTTP: h}
}
