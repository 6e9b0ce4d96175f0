package soak

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"

	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/step"
)

// reading is the state of an address in a master's kernel, taken while the speaker
// reported the same stage before and after.
type reading struct {
	at     time.Duration // just before the kernel was read
	master string
	addr   netip.Addr
	stage  string
	since  time.Time // when the stage began
	bound  bool
	// open is how long the filter still passes the address: the remaining time of the set
	// element that expires first, 0 if one is missing.
	open time.Duration
	// If the speaker holds the lease, it ends between least and most from now.
	least, most time.Duration
}

// closing is how long before the lease ends the filter may close.
const closing = 100 * time.Millisecond

// wrong describes how the reading contradicts the speaker; empty if it does not. If
// lasts is true, the state is a violation only when found again: it may hold until a
// fault's damage is repaired.
func (l reading) wrong() (what string, lasts bool) {
	announced := l.stage == "announced"
	switch {
	case announced && !l.bound:
		return "announced, but not on the link", true
	case announced && l.open == 0 && l.at+closing < l.least:
		return "announced, but the fence is closed", true
	case announced && l.at+l.open > l.most:
		return fmt.Sprintf("the fence is open %v beyond the lease", l.at+l.open-l.most), false
	case !announced && l.open > 0:
		return fmt.Sprintf("%s, but the fence is open for %v", l.stage, l.open), false
	case l.stage == "withdrawn" && l.bound:
		return "withdrawn, but on the link", false
	}
	return "", false
}

// watchKernel repeatedly compares a master's kernel with its speaker's status.
func (w *flatWitness) watchKernel(ctx context.Context, master string) {
	var before []reading
	w.every(ctx, 250*time.Millisecond, nil, func() error {
		now := w.readMaster(ctx, master, w.site.Node(master+"-speaker"))
		w.judge(now, before)
		before = now
		return nil
	})
}

// judge records violations in the new readings, given the previous ones.
func (w *flatWitness) judge(now, before []reading) {
	w.looking.Lock()
	defer w.looking.Unlock()
	for _, l := range now {
		w.looks[l.stage]++
		what, lasts := l.wrong()
		if lasts && !slices.ContainsFunc(before, func(b reading) bool {
			prev, _ := b.wrong()
			return b.addr == l.addr && prev == what && b.since.Equal(l.since)
		}) {
			continue
		}
		if what != "" {
			w.found = append(w.found, Violation{l.at, Disagrees, fmt.Sprintf("%s on %s: %s", l.addr, l.master, what), nil})
		}
	}
}

// readMaster reads a master's kernel once. It returns nothing if the speaker does not
// answer or its state changed meanwhile.
func (w *flatWitness) readMaster(ctx context.Context, master string, speaker *lab.Node) (looks []reading) {
	daemons := speaker.Daemons()
	if len(daemons) == 0 || !speaker.Running() {
		return nil
	}
	ask := func() admin.Status {
		const patient = 500 * time.Millisecond // with a frozen speaker
		ctx, cancel := context.WithTimeout(ctx, patient)
		defer cancel()
		return step.Get(admin.NewClient(fmt.Sprintf("/proc/%d/root/run/herald/herald.sock", daemons[0].Pid())).Status(ctx))
	}
	_ = step.Run(func() {
		asked := w.rec.clock()
		before := ask()
		at := w.rec.clock()
		bound, open := kernel(speaker)
		after := ask()
		answered := w.rec.clock()
		for _, v := range before.VIPs {
			same := func(o admin.VIP) bool {
				return o.Address == v.Address && o.Stage == v.Stage && o.Since.Equal(v.Since) && o.Error == "" && v.Error == ""
			}
			if after.Started.Equal(before.Started) && slices.ContainsFunc(after.VIPs, same) {
				looks = append(looks, reading{
					at: at, master: master, addr: v.Address, stage: string(v.Stage), since: v.Since, bound: bound[v.Address], open: open[v.Address],
					least: asked + left(before, v.Name), most: answered + left(after, v.Name),
				})
			}
		}
	})
	return looks
}

// left returns the remaining time of the speaker's lease of a VIP.
func left(s admin.Status, vip string) time.Duration {
	if s.Election != nil {
		for _, l := range s.Election.Leases {
			if l.Lease == vip && l.Holder == s.Node {
				return time.Duration(l.Left)
			}
		}
	}
	return 0
}

// kernel reads the addresses of a node, and how long its filter stays open for each.
func kernel(n *lab.Node) (bound map[netip.Addr]bool, open map[netip.Addr]time.Duration) {
	h := step.Get(n.Handle())
	defer h.Close()
	bound, open = make(map[netip.Addr]bool), make(map[netip.Addr]time.Duration)
	for _, a := range step.Get(h.AddrList(nil, 0)) {
		if addr, ok := netip.AddrFromSlice(a.IP); ok {
			bound[addr.Unmap()] = true
		}
	}
	step.Do(n.Do(func() error { return step.Run(func() { readFilter(open) }) }))
	return bound, open
}

// readFilter adds the time until one of both locks of an address closes, if both are open.
func readFilter(open map[netip.Addr]time.Duration) {
	c := step.Get(nftables.New())
	for _, f := range []struct {
		family nftables.TableFamily
		key    nftables.SetDatatype
		locks  []string
	}{
		{nftables.TableFamilyARP, nftables.TypeIPAddr, []string{"answer4", "until4"}},
		{nftables.TableFamilyINet, nftables.TypeIP6Addr, []string{"answer6", "until6"}},
	} {
		left := make(map[netip.Addr][]time.Duration)
		for _, lock := range f.locks {
			set := &nftables.Set{Table: &nftables.Table{Name: "herald", Family: f.family}, Name: lock, KeyType: f.key}
			for _, e := range step.Get(c.GetSetElements(set)) {
				if addr, ok := netip.AddrFromSlice(e.Key); ok && e.Expires > 0 {
					left[addr] = append(left[addr], e.Expires)
				}
			}
		}
		for addr, ends := range left {
			if len(ends) == len(f.locks) {
				open[addr] = slices.Min(ends)
			}
		}
	}
}
