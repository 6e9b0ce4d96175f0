package config

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// CalmLease is the shortest lease that a busy node renews in time without real-time scheduling.
const CalmLease = 500 * time.Millisecond

func (v validator) election(p path, e *Election) {
	v.members(p.field("members"), e)
	bind := p.field("bind")
	if e.Bind.IsValid() && (e.Bind.Addr().IsMulticast() || e.Bind.Addr().IsUnspecified()) {
		v.errorf(bind, "want an address of this host, got %s", e.Bind.Addr())
	}
	v.vipsAreNoMembers(p, e)
	keyFile := p.field("keyFile")
	switch {
	case e.Insecure && e.KeyFile != "":
		v.errorf(p.field("insecure"), "a key is given, with which nothing is sent in the clear: keep one of the two")
	case e.KeyFile != "":
		v.file(keyFile, e.KeyFile)
	case e.Insecure && !v.votes(e):
		v.errorf(p.field("insecure"), "a node that does not vote can join only with a key: set keyFile on all members")
	case !e.Insecure && v.wasRead(keyFile) && v.wasRead(p.field("insecure")):
		v.errorf(keyFile, "missing: write one with herald keygen and give the same to all members")
	}
	lease := p.field("lease")
	v.duration(lease, e.Lease, 100*time.Millisecond, 10*time.Second, "100ms to 10s")
	if e.Lease < CalmLease && !v.config.Realtime && v.wasRead("realtime") {
		v.errorf(lease, "below %s a busy node loses it: set realtime: true, or a longer lease", CalmLease)
	}
	if e.Quorum != Majority && e.Quorum != None {
		v.errorf(p.field("quorum"), "want majority or none, got %s", quote(string(e.Quorum)))
	}
}

// votes reports whether this node is among those that vote, as far as can be told.
func (v validator) votes(e *Election) bool {
	_, votes := e.Members[v.config.NodeName]
	return votes || len(e.Members) == 0 || v.config.NodeName == "" || !v.wasRead("election.members")
}

func (v validator) members(p path, e *Election) {
	if !v.wasRead(p) {
		return
	}
	if len(e.Members) == 0 {
		v.errorf(p, "list all nodes that vote")
		return
	}
	if !v.votes(e) && !v.mayServe() && !v.onlyBalances() && !e.Bind.IsValid() && v.wasRead(p.parent().field("bind")) {
		v.errorf(p, "lacks this node, %s: add it with its address, or give it a bind if it is not to vote", v.config.NodeName)
	}
	const most = 9 // as many as a majority can still be heard of within a lease
	if len(e.Members) > most {
		v.errorf(p, "want at most %d members, got %d: nodes that do not vote can still announce by bgp", most, len(e.Members))
	}
	owner := map[netip.AddrPort]string{}
	for _, name := range slices.Sorted(maps.Keys(e.Members)) {
		addr, p := e.Members[name], p.field(name)
		switch other, taken := owner[addr]; {
		case !addr.IsValid(): // reported
		case !isUnicast(addr.Addr()):
			v.errorf(p, "want the address of a host, got %s", addr.Addr())
		case taken:
			v.errorf(p, "%s is the address of %s already", addr, other)
		}
		owner[addr] = name
	}
}

// vipsAreNoMembers refuses members and binds at a VIP: votes have to reach every node, whoever holds the VIP.
func (v validator) vipsAreNoMembers(p path, e *Election) {
	for _, vip := range v.config.VIPs {
		if e.Bind.IsValid() && slices.Contains(vip.Addresses, e.Bind.Addr()) && v.positions[p.field("bind")] != (position{}) {
			v.errorf(p.field("bind"), "%s is a VIP of this speaker, want an address of this node's own", e.Bind.Addr())
		}
		for _, name := range slices.Sorted(maps.Keys(e.Members)) {
			if addr := e.Members[name]; addr.IsValid() && slices.Contains(vip.Addresses, addr.Addr()) {
				v.errorf(p.field("members").field(name), "%s is a VIP of this speaker, want the node's own address", addr.Addr())
			}
		}
	}
}

func (v validator) arp(p path, a *ARP) {
	v.duration(p.field("refresh"), a.Refresh, time.Second, time.Hour, "1s to 1h")
	if a.Fence != FenceAuto && a.Fence != FenceRequired && a.Fence != FenceOff {
		v.errorf(p.field("fence"), "want auto, required or off, got %s", quote(string(a.Fence)))
	}
}
