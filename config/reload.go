package config

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
)

// CheckReload returns an error if new differs from old in a way that needs a restart. The old configuration is
// nil at the start, which allows everything.
func CheckReload(old, new *Config) error {
	const restart = "cannot change while running: restart herald to apply it"
	if old == nil {
		return nil
	}
	switch {
	case old.Admin.Socket != new.Admin.Socket:
		return fmt.Errorf("admin.socket %s", restart)
	case old.Metrics.Listen != new.Metrics.Listen:
		return fmt.Errorf("metrics.listen %s", restart)
	case old.Realtime != new.Realtime:
		return fmt.Errorf("realtime %s", restart)
	case old.NodeName != new.NodeName:
		return fmt.Errorf("nodeName %s", restart)
	case old.BGP != nil && new.BGP == nil:
		return fmt.Errorf("bgp cannot be removed while running: restart herald to apply it")
	case (old.Election == nil) != (new.Election == nil):
		return fmt.Errorf("election cannot be added or removed while running: restart herald to apply it")
	case old.ARP != new.ARP:
		return fmt.Errorf("arp %s", restart)
	}
	if field := servicesChanged(old.Services, new.Services); field != "" {
		return fmt.Errorf("%s %s", field, restart)
	}
	return unmoved(old, new)
}

// Removed lists the parts of old that new lacks: addresses of VIPs with their checks, peers and prefixes, BGP
// peers, balancers with their backends, and members of the election.
func Removed(old, new *Config) (removed []string) {
	stays := make(map[string]bool)
	for _, p := range new.parts() {
		stays[p.String()] = true
	}
	for _, p := range old.parts() {
		if !stays[p.String()] && (p.owner == "" || stays[p.owner]) {
			removed = append(removed, p.String())
		}
	}
	return removed
}

// part is a part of a configuration that [Removed] compares.
type part struct {
	name  string
	owner string // the part that contains it; empty if none does
}

func (p part) String() string {
	if p.owner == "" {
		return p.name
	}
	return p.name + " of " + p.owner
}

func (c *Config) parts() (parts []part) {
	for _, v := range c.VIPs {
		for _, addr := range v.Addresses {
			vip := "vip " + addr.String()
			parts = append(parts, part{name: vip})
			for _, check := range v.Checks {
				parts = append(parts, part{"check " + check, vip})
			}
			if len(v.Peers) > 0 {
				parts = append(parts, part{"peers", vip})
			}
			for _, prefix := range v.Prefixes {
				parts = append(parts, part{"prefix " + prefix.String(), vip})
			}
		}
	}
	for _, check := range c.Checks {
		if check.Not {
			parts = append(parts, part{"not: true", "check " + check.Name})
		}
	}
	if c.BGP != nil {
		for _, p := range c.BGP.Peers {
			parts = append(parts, part{name: "peer " + p.Name()})
		}
	}
	for _, b := range c.Balancers {
		balancer := "balancer " + b.Name
		parts = append(parts, part{name: balancer})
		if s := b.Backends.Static; s != nil {
			for _, addr := range s.Addresses {
				parts = append(parts, part{"backend " + addr.String(), balancer})
			}
		}
	}
	if c.Election != nil {
		for _, name := range slices.Sorted(maps.Keys(c.Election.Members)) {
			parts = append(parts, part{name: "member " + name})
		}
	}
	return parts
}

// servicesChanged returns the name of the first field of the services section that differs; empty if all are equal.
func servicesChanged(old, new *Services) string {
	if old == nil || new == nil {
		if old != new {
			return "services"
		}
		return ""
	}
	before, after := reflect.ValueOf(*old), reflect.ValueOf(*new)
	for f := range before.Type().Fields() {
		if !reflect.DeepEqual(before.FieldByIndex(f.Index).Interface(), after.FieldByIndex(f.Index).Interface()) {
			return "services." + f.Tag.Get("yaml")
		}
	}
	return ""
}

// unmoved refuses an address that moves between VIPs, or changes its way of
// announcement, if a lease is involved. Nodes with the old file would
// use another lease or none.
func unmoved(old, new *Config) error {
	owner := make(map[netip.Addr]VIP)
	for _, v := range old.VIPs {
		for _, addr := range v.Addresses {
			owner[addr] = v
		}
	}
	for _, v := range new.VIPs {
		for _, addr := range v.Addresses {
			prev, ok := owner[addr]
			if !ok || prev.Announce != AnnounceARP && v.Announce != AnnounceARP {
				continue
			}
			if prev.Name != v.Name || prev.Announce != v.Announce {
				return fmt.Errorf("vips: %s cannot move from %s (%s) to %s (%s) while running, as nodes with the old file would answer too: remove it on all nodes first, then add it",
					addr, prev.Name, prev.Announce, v.Name, v.Announce)
			}
		}
	}
	return nil
}
