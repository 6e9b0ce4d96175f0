package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/herald-vip/herald/arp"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/netutil"
	"github.com/herald-vip/herald/netutil/fence"
)

// place finds the links of the VIPs that none is configured for, and has all of them watched.
func (g *segment) place() (changed bool) {
	for i := range g.vips {
		v := &g.vips[i]
		if !v.fixed {
			link, err := netutil.LinkFor(v.addr)
			if err != nil && v.link != "" {
				err, link = nil, v.link // its other addresses may come back
			}
			changed = changed || link != v.link
			v.link, v.lost = link, err
		}
	}
	g.oversee()
	return changed
}

// oversee has the links and the addresses of all that this node may answer for watched.
// The mutex is held.
func (g *segment) oversee() {
	g.askAsNode()
	if g.acquainted {
		var watched []arp.Watched
		for v := range g.all() {
			if v.link != "" {
				watched = append(watched, arp.Watched{Link: v.link, Addr: v.addr, Policy: v.policy, Probe: v.policy == arp.Yield})
			}
		}
		g.announcer.Apply(watched)
		for _, f := range g.announcer.Status() { // what was found under another policy counts under the new one
			g.note(f)
		}
	}
	g.judge()
}

// all are the addresses of VIPs and those of Services that this node stands for.
func (g *segment) all() iter.Seq[flatVIP] {
	return func(yield func(flatVIP) bool) {
		for _, list := range [][]flatVIP{g.vips, g.services.standing} {
			for _, v := range list {
				if !yield(v) {
					return
				}
			}
		}
	}
}

// askAsNode has the kernel ask for IPv4 neighbours in the node's own name on the links of
// VIPs, and logs it once where it cannot. The mutex is held.
func (g *segment) askAsNode() {
	asking := make(map[string]string)
	for v := range g.all() {
		if _, known := asking[v.link]; known || v.link == "" || !v.addr.Is4() {
			continue
		}
		asking[v.link] = ""
		err := fence.AnnounceOwn(v.link)
		if err == nil || errors.Is(err, fs.ErrNotExist) { // a missing link has a verdict of its own
			continue
		}
		asking[v.link] = err.Error()
		if g.asking[v.link] != err.Error() {
			g.log.Warn("the kernel may ask for neighbours in the name of a VIP", "link", v.link, "err", err)
		}
	}
	g.asking = asking
}

// asksAsVIP says where the kernel may ask in the name of a VIP.
func (g *segment) asksAsVIP() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var said []string
	for _, why := range g.asking {
		if why != "" {
			said = append(said, why)
		}
	}
	slices.Sort(said)
	return strings.Join(said, "; ")
}

// linksChanged takes in how the links are now.
func (g *segment) linksChanged(links map[string]netutil.Link) {
	g.mu.Lock()
	g.links = links
	changed := g.place()
	macs := g.hardware()
	g.mu.Unlock()
	g.election.Describe(macs)
	if changed {
		g.moved()
	}
	g.reconsider()
}

// hardware is where the others may see what this node answers for: on the links of its
// VIPs and, with Services, on any with a subnet. The mutex is held.
func (g *segment) hardware() (macs []net.HardwareAddr) {
	used := make(map[string]bool)
	for v := range g.all() {
		used[v.link] = true
	}
	for _, name := range slices.Sorted(maps.Keys(g.links)) {
		l := g.links[name]
		if len(l.MAC) > 0 && (used[name] || g.services.on && len(l.Prefixes) > 0) {
			macs = append(macs, l.MAC)
		}
	}
	return macs
}

// judge tells the speaker how the links of its VIPs are.
func (g *segment) judge() {
	for v := range g.all() {
		verdict := health.Verdict{Check: linkCheck(v), State: health.Healthy, Reason: "up"}
		link, known := g.links[v.link]
		switch {
		case v.lost != nil:
			verdict.State, verdict.Reason = health.Unhealthy, v.lost.Error()
		case g.links == nil:
			verdict.State, verdict.Reason = health.Unknown, "not looked at yet"
		case !known:
			verdict.State, verdict.Reason = health.Unhealthy, "there is no link "+v.link
		case !link.Up:
			verdict.State, verdict.Reason = health.Unhealthy, "down or without carrier"
		}
		g.tell(verdict)
	}
}

// tell passes a verdict on if it is news.
func (g *segment) tell(v health.Verdict) {
	old, ok := g.verdicts[v.Check]
	if ok && old.State == v.State && old.Reason == v.Reason {
		return
	}
	v.Since = time.Now()
	v.Cause, v.Checked = v.Since, v.Since
	g.verdicts[v.Check] = v
	g.told(v)
}

// found takes in what the wire says of an address.
func (g *segment) found(f arp.Finding) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.note(f)
}

// note makes a finding a verdict where it decides. The mutex is held.
func (g *segment) note(f arp.Finding) {
	for _, v := range g.vips {
		if v.addr != f.Addr || v.link != f.Link || v.policy != arp.Yield {
			continue
		}
		verdict := health.Verdict{Check: addressCheck(v), State: health.Healthy, Reason: "nobody else uses it"}
		switch f.State {
		case arp.Unknown:
			verdict.State, verdict.Reason = health.Unknown, "asking the link whether it is in use"
		case arp.Taken:
			verdict.State, verdict.Reason = health.Unhealthy, fmt.Sprintf("in use by %s, which is no member", f.MAC)
		}
		g.tell(verdict)
	}
}

func linkCheck(v flatVIP) string {
	if v.link == "" {
		return "link of " + v.addr.String()
	}
	return "link " + v.link
}

func addressCheck(v flatVIP) string { return "address " + v.addr.String() }

// of returns the link of a VIP's address and the checks that the segment adds to it.
func (g *segment) of(addr netip.Addr) (link string, checks []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, v := range g.vips {
		if v.addr != addr {
			continue
		}
		checks = append(checks, linkCheck(v))
		if v.policy == arp.Yield {
			checks = append(checks, addressCheck(v))
		}
		return v.link, checks
	}
	return "", nil
}

// checks are the verdicts that the segment adds to those of the monitor.
func (g *segment) checks() []health.Verdict {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Values(g.verdicts))
}
