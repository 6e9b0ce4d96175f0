package soak

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// doFlat makes a fault that only the flat topology knows.
func (j *injector) doFlat(ctx context.Context, f Fault) error {
	switch f.Kind {
	case GossipCut:
		return j.nft(ctx, f.Master, `
			add table inet lab
			add chain inet lab in { type filter hook input priority 0; }
			add chain inet lab out { type filter hook output priority 0; }
			add rule inet lab in meta l4proto { tcp, udp } th dport 7946 drop
			add rule inet lab out meta l4proto { tcp, udp } th dport 7946 drop`)
	case RulesFlushed:
		return j.nft(ctx, f.Master, "flush ruleset")
	case Parted:
		return j.site.Part(lan, []string{f.Master}, j.others(f.Master))
	case Unheard:
		next := j.others(f.Master)[0]
		return j.site.Link(next, lan).Deafen(next, j.site.Link(f.Master, lan).MAC(f.Master))
	case StrangerHas:
		return j.strangerHas(ctx, "add")
	case AllRestarted:
		var err error
		for _, m := range masters {
			j.ending(m)
			err = errors.Join(err, j.speaker(m).Kill())
		}
		return err
	}
	return errors.New("nobody knows how to do that")
}

// undoFlat mends what doFlat broke.
func (j *injector) undoFlat(ctx context.Context, f Fault) error {
	switch f.Kind {
	case GossipCut: // it may have been flushed
		return j.nft(ctx, f.Master, "add table inet lab; delete table inet lab")
	case Parted, Unheard:
		return j.site.Part(lan)
	case StrangerHas:
		return j.strangerHas(ctx, "del")
	case AllRestarted:
		var err error
		for _, m := range masters {
			err = errors.Join(err, j.boot(ctx, m))
		}
		return err
	}
	return nil // it mends itself
}

// others are the masters besides one, the next one first.
func (j *injector) others(master string) []string {
	i := slices.Index(masters, master)
	return slices.Concat(masters[i+1:], masters[:i])
}

// nft runs commands of nftables on a master.
func (j *injector) nft(ctx context.Context, master, commands string) error {
	_, err := j.node(master).Run(ctx, "nft", strings.TrimSpace(commands))
	return err
}

// strangerHas adds the VIP to the stranger, or deletes it there.
func (j *injector) strangerHas(ctx context.Context, what string) error {
	var err error
	for _, a := range flatVIPs() {
		_, e := j.node(stranger).Run(ctx, "ip", "address", what, fmt.Sprintf("%v/%d", a, a.BitLen()), "dev", "eth1")
		err = errors.Join(err, e)
	}
	return err
}
