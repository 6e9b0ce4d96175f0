package doctor

import (
	"net/netip"
	"syscall"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/doctor/facts"
	"github.com/herald-vip/herald/netutil/link"
	"github.com/herald-vip/herald/status/admin"
)

// passingFile is the file of a master that passes packets of other members' connections on.
func passingFile() string {
	return routedFile + `
election:
  members: {m1: "10.0.1.1:7946", m2: "10.0.1.2:7946", m3: "10.0.1.3:7946"}
  keyFile: /etc/herald/gossip.key
`
}

// passing adds a running Herald with status p.
func passing(p *admin.Passing) func(*config.Config, *facts.Facts) {
	return runs(func(s *admin.Status) { s.Passing = p })
}

// tunnelPort makes the tunnel's port taken, by these sockets if given.
func tunnelPort(by ...facts.Socket) func(*config.Config, *facts.Facts) {
	return func(_ *config.Config, f *facts.Facts) {
		p := facts.Port{Use: "second chance", Network: "udp", Local: netip.MustParseAddrPort("0.0.0.0:7947")}
		if _, ok := f.Ports[p]; ok { // else the port is not examined
			f.Ports[p] = syscall.EADDRINUSE
		}
		f.Sockets = by
	}
}

// tunnelLink does the same and adds a link with the tunnel's name and this kind.
func tunnelLink(kind string, up bool) func(*config.Config, *facts.Facts) {
	return func(c *config.Config, f *facts.Facts) {
		tunnelPort()(c, f)
		f.Host.Links[link.TunnelName] = link.Link{Name: link.TunnelName, Index: 9, Kind: kind, Up: up}
	}
}

func passingFaults() []fault {
	const inUse = "second chance 0.0.0.0:7947/udp: in use by "
	serf := facts.Socket{Network: "udp", Local: netip.MustParseAddrPort("10.0.1.1:7947"), PID: 7, Program: "serf"}
	return []fault{
		{"not passed on", passing(&admin.Passing{Error: "no nftables"}), Warning, "member", "second chance: no nftables"},
		{"not passed on to all", passing(&admin.Passing{Members: []string{"m3"}, Error: "no answer by the tunnel from m2"}), Warning, "member", "second chance: no answer by the tunnel from m2"},
		{"the tunnel's port taken", tunnelPort(serf), Warning, "port", inUse + "serf, process 7"},
		{"another's link", tunnelLink("bridge", true), Warning, "port", inUse + "a program that is not visible"},
		{"a tunnel that could not be set up", tunnelLink("vxlan", false), Warning, "port", inUse + "a program that is not visible"},
	}
}
