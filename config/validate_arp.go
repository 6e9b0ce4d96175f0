package config

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/internal/yaml"
)

// calmLease is the shortest lease that a busy node renews in time without real-time scheduling.
const calmLease = 500 * time.Millisecond

func (v validator) election(p yaml.Path, e *electorate.Settings) {
	v.members(p.Field("members"), e)
	widest := e.Widest(v.config.NodeName, e.Bind)
	widest.Duration = electorate.MaxDuration // the lease is checked elsewhere
	if err := widest.Validate(); err != nil && len(widest.Members) > 0 {
		v.Errorf(p.Field("members"), "%v", err)
	}
	bind := p.Field("bind")
	if e.Bind.IsValid() && (e.Bind.Addr().IsMulticast() || e.Bind.Addr().IsUnspecified()) {
		v.Errorf(bind, "want an address of this host, got %s", e.Bind.Addr())
	}
	if v.Given(bind) && v.isVIP(e.Bind.Addr()) { // votes must reach every node, regardless of the holder of the VIP
		v.Errorf(bind, "%s is a VIP of this speaker, want an address of this node's own", e.Bind.Addr())
	}
	keyFile := p.Field("keyFile")
	switch {
	case e.Insecure && e.KeyFile != "":
		v.Errorf(p.Field("insecure"), "has no effect with keyFile, which encrypts all messages: remove one of the two")
	case e.KeyFile != "":
		v.File(keyFile, e.KeyFile)
	case e.Insecure && !v.votes(e):
		v.Errorf(p.Field("insecure"), "a node without a vote can join only with a key: set keyFile on all members")
	case !e.Insecure && v.WasRead(keyFile) && v.WasRead(p.Field("insecure")):
		v.Errorf(keyFile, "missing: write one with herald keygen and give the same to all members")
	}
	lease := p.Field("lease")
	if e.Lease < calmLease && !v.config.Realtime && v.WasRead("realtime") {
		v.Errorf(lease, "below %s a busy node may lose it: set realtime: true, or a longer lease", calmLease)
	}
}

// votes reports whether this node votes, or may vote if the file has mistakes.
func (v validator) votes(e *electorate.Settings) bool {
	_, votes := e.Members[v.config.NodeName]
	return votes || len(e.Members) == 0 || v.config.NodeName == "" || !v.WasRead("election.members")
}

// join checks the addresses at which this node looks for members.
func (v validator) join(p yaml.Path, join []netip.AddrPort) {
	for i, at := range join {
		switch {
		case !at.IsValid(): // reported
		case !yaml.IsUnicast(at.Addr()):
			v.Errorf(p.Item(i), "want the address of a host, got %s", at.Addr())
		case v.isVIP(at.Addr()):
			v.Errorf(p.Item(i), "%s is a VIP of this speaker, want a node's own address", at.Addr())
		}
	}
}

func (v validator) members(p yaml.Path, e *electorate.Settings) {
	if !v.WasRead(p) {
		return
	}
	switch join, forget := p.Parent().Field("join"), p.Parent().Field("forget"); {
	case len(e.Members) > 0 && e.Open():
		v.Errorf(p, "join and bootstrap exclude a list of members: keep one or the other")
	case len(e.Members) > 0 && e.Forget != nil:
		v.Errorf(forget, "has no effect on listed members: remove it, or use join in place of members")
	case len(e.Members) == 0 && !e.Open() && v.WasRead(join):
		v.Errorf(p, "list all nodes that vote, or use join or bootstrap")
	case e.Open() && e.Quorum == electorate.None:
		v.Errorf(p.Parent().Field("quorum"), "join and bootstrap need a majority: remove this, or list the members")
	case e.Open() && e.Insecure:
		v.Errorf(p.Parent().Field("insecure"), "join and bootstrap need a key: set keyFile, or list the members")
	case len(e.Join) == 0 && e.Bootstrap && !e.Bind.IsValid() && v.WasRead(p.Parent().Field("bind")):
		v.Errorf(p.Parent().Field("bind"), "missing: give the address and port at which others find this node")
	}
	v.join(p.Parent().Field("join"), e.Join)
	if len(e.Members) == 0 {
		return
	}
	worker := v.mayBalance() && !v.config.Flat() // without a lease it needs no vote
	if !v.votes(e) && !v.mayServe() && !worker && !e.Bind.IsValid() && v.WasRead(p.Parent().Field("bind")) {
		v.Errorf(p, "lacks this node, %s: add it with its address, or set bind if it should not vote", v.config.NodeName)
	}
	const most = 9 // with more, a majority may not answer within a lease
	if len(e.Members) > most {
		v.Errorf(p, "want at most %d members, got %d: nodes without a vote can still announce by bgp", most, len(e.Members))
	}
	owner := map[netip.AddrPort]string{}
	for _, name := range slices.Sorted(maps.Keys(e.Members)) {
		addr, p := e.Members[name], p.Field(name)
		switch other, taken := owner[addr]; {
		case !addr.IsValid(): // reported
		case !yaml.IsUnicast(addr.Addr()):
			v.Errorf(p, "want the address of a host, got %s", addr.Addr())
		case taken:
			v.Errorf(p, "%s is the address of %s already", addr, other)
		}
		owner[addr] = name
		if v.isVIP(addr.Addr()) {
			v.Errorf(p, "%s is a VIP of this speaker, want the node's own address", addr.Addr())
		}
	}
}
