package election

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/election/members"
	"github.com/herald-vip/herald/internal/wake"
)

const (
	// rejoin is the interval for joining absent members. Memberlist gives up on dead members, so a partition would not
	// heal by itself.
	rejoin = time.Second
	// spread is the time limit for memberlist to distribute a changed description.
	spread = 200 * time.Millisecond
)

// runMembership periodically asks absent members to join and removes former members, until ctx ends.
func (n *node) runMembership(ctx context.Context) {
	tick := time.NewTicker(rejoin)
	defer tick.Stop()
	told := newStatusLog(n.log)
	for more := true; more; more = n.waitForTick(ctx, tick.C) {
		n.updateMembers()
		s := n.status()
		if time.Since(n.started) >= rejoin { // at first no member has been received
			told.log(s)
		}
		n.askToJoin(ctx, s)
		n.rememberMembers()
	}
}

// askToJoin asks absent members to join, all at once, because a dead one may take long to fail. An observer asks
// voters, and while it knows no other member, all seeds.
func (n *node) askToJoin(ctx context.Context, s Status) {
	absent := make(map[netip.AddrPort]string)
	if n.members.Alone() || !s.hearsMajority() {
		n.mu.Lock()
		for name, at := range n.seeds {
			absent[at] = name
		}
		n.mu.Unlock()
	}
	for _, m := range s.Members {
		if m.Voter && !(m.Alive && n.members.Joined(m.FullName)) && m.Address.IsValid() {
			absent[m.Address] = m.Name
		} else {
			n.members.NoteAnswer(time.Now(), m.Name, false)
		}
	}
	var asking sync.WaitGroup
	for at, name := range absent {
		asking.Go(func() {
			if ctx.Err() == nil {
				err := n.network.Join(at) // its absence is logged elsewhere
				n.members.NoteAnswer(time.Now(), name, err == nil)
			}
		})
	}
	asking.Wait()
}

// updateMembers passes the present members to the machine and the handler.
func (n *node) updateMembers() {
	n.step(func(m *lease.Machine, now time.Time) {
		m.AddObservers(now, n.members.Observers()...)
		n.renameMembers(m, now)
		n.admit(now)
		m.Heed(now, n.members.Standings())
		n.describe(func(d *members.Description) { d.Standing = m.Standing() })
	})
	n.events.setAlive(n.alive())
}

// renameMembers makes the members of a configured list the desired ones, if their nodes have said since that they are
// others. The mutex is held.
func (n *node) renameMembers(m *lease.Machine, now time.Time) {
	desired := n.electorate(n.config, n.voters())
	if slices.Equal(desired.Members, n.desired) {
		return
	}
	n.desired = desired.Members
	if err := m.Reconfigure(now, desired); err != nil {
		n.network.Warn("cannot adopt the names of the members: " + err.Error())
	}
}

// voters returns the voters in force. The mutex is held.
func (n *node) voters() []string {
	if active, _ := n.machine.Electorates(); active != nil {
		return active.Members
	}
	return nil
}

// electorate returns the electorate that c desires: for an open one, this member alone. A listed name stands for the
// member that its node says to be. Until the node has joined, it stands for the voter with that name and address. The
// mutex is held.
func (n *node) electorate(c *Config, voters []string) electorate.Electorate {
	e := electorate.Electorate{Duration: c.Lease, Quorum: c.Quorum}
	for name, at := range c.Members {
		listed, member := electorate.Member(name, at, ""), n.members.Member(name)
		if name == c.Self {
			member = c.member
		}
		if i := slices.IndexFunc(voters, func(v string) bool { return strings.HasPrefix(v, listed+"#") }); i >= 0 && member == "" {
			member = voters[i]
		}
		e.Members = append(e.Members, cmp.Or(member, listed))
	}
	if c.Open() {
		e.Members = append(e.Members, c.member)
	}
	slices.Sort(e.Members)
	return e
}

// waitForTick handles arrivals and changes of this member's description until the next tick. It reports false when ctx
// ends.
func (n *node) waitForTick(ctx context.Context, tick <-chan time.Time) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-tick:
			return true
		case <-n.arrived:
			n.updateMembers()
		case <-n.described:
			_ = n.network.list.UpdateNode(spread) // a late change is part of the next push/pull exchange
		}
	}
}

// admit admits the configured members, the voters in force, and joined observers while the machine knows them. An
// observer admits only itself by configuration: voters may change without its knowledge, and any member will do for
// joining. The mutex is held.
func (n *node) admit(now time.Time) {
	var seeds map[string]netip.AddrPort
	admitted := maps.Clone(n.config.Members)
	if !n.config.votes() {
		seeds, admitted = n.config.seeds(), make(map[string]netip.AddrPort)
		for name, at := range n.remembered {
			if at != n.config.home() && at.Addr().Is4() == n.config.home().Addr().Is4() {
				seeds[name+" as remembered"] = at // a further seed, if it differs
			}
		}
	}
	admitted[n.config.Self] = n.config.home()
	taken := make(map[netip.AddrPort]bool)
	for _, at := range admitted {
		taken[at] = true
	}
	known := make(map[string]bool)
	for _, m := range n.machine.Members(now) {
		known[m.Name] = true
		switch at := n.members.Locate(m.FullName); {
		case !at.IsValid() || !m.Voter || taken[at]:
		case n.config.Open():
			seeds[m.Name] = at
		case n.config.votes() && !admitted[m.Name].IsValid():
			admitted[m.Name] = at
		}
	}
	gone := n.members.Retain(known)
	if maps.Equal(admitted, n.admitted) && maps.Equal(seeds, n.seeds) && !gone {
		return
	}
	if !gone {
		n.admission.ForgetNamed()
	}
	n.admitted, n.seeds = admitted, seeds
	n.members.Configure(admitted, seeds)
}

func (n *node) describe(change func(*members.Description)) {
	if n.members.Describe(change) {
		wake.Up(n.described)
	}
}

// rememberMembers makes an observer store the advertising members whenever they change. If all configured members are
// gone at the next start, it finds some of these.
func (n *node) rememberMembers() {
	n.mu.Lock()
	file, votes := n.config.Remember, n.config.votes()
	n.mu.Unlock()
	if file == "" || votes {
		return
	}
	advertising := make(map[string]netip.AddrPort)
	for _, o := range n.exchange.List() {
		if !o.Self && !o.Left && len(advertising) < members.MaxRemembered {
			advertising[o.Member] = o.Address
		}
	}
	if len(advertising) == 0 || maps.Equal(advertising, n.written) {
		return
	}
	if err := members.WriteRemembered(file, advertising); err != nil {
		n.network.Warn("the next start will know only the configured members: " + err.Error())
		return
	}
	n.written = advertising
}

// reconfigure changes all settings that can change while the node runs, or none.
func (n *node) reconfigure(c *Config) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	old := n.config
	switch self, now := old.home(), c.home(); {
	case c.Self != old.Self:
		return fmt.Errorf("the name of this node cannot change from %q to %q while the election runs: restart herald", old.Self, c.Self)
	case now != self:
		return fmt.Errorf("the address of this node cannot change from %v to %v while the election runs: restart herald", self, now)
	case c.Insecure && !old.Insecure:
		return errors.New("encryption cannot be turned off while the election runs: restart herald")
	case !c.Insecure && old.Insecure:
		return errors.New("encryption cannot be turned on while the election runs: restart herald")
	case c.Open() != old.Open():
		return errors.New("members and join cannot replace each other while the election runs: restart herald")
	}
	c.member = old.member
	now := n.tick()
	desired := n.electorate(c, n.voters())
	if err := n.machine.Reconfigure(now, desired); err != nil {
		return err
	}
	n.desired = desired.Members
	if c.Open() {
		n.machine.SetOpen(c.openElectorate())
	}
	n.config = c
	n.admit(now)
	if !slices.EqualFunc(c.Keys, old.Keys, bytes.Equal) {
		n.admission.ForgetNamed()
		if err := rotateKeys(n.ring, c.Keys); err != nil {
			return err // does not happen for valid keys
		}
		n.log.Info("election keys changed", "keys", len(c.Keys))
	}
	n.exchange.SetLease(c.Lease)
	n.warn(old)
	n.flush()
	return nil
}

// warn logs unusual choices of the operator when they are made. old is the previous configuration, or nil.
func (n *node) warn(old *Config) {
	if n.config.Insecure && old == nil {
		n.log.Warn("THE ELECTION IS NOT ENCRYPTED: anyone who can send from a member's address decides where the VIPs are; " +
			"run `herald keygen` and set keyFile")
	}
	if n.config.Quorum == electorate.None && (old == nil || old.Quorum != electorate.None) {
		n.log.Warn("quorum is none: members that cannot reach each other each hold the VIPs")
	}
}

// present reports whether this node has an address; true if that is unknown.
func present(addr netip.Addr) bool {
	all, err := net.InterfaceAddrs()
	if err != nil || addr.IsLoopback() {
		return true
	}
	return slices.ContainsFunc(all, func(a net.Addr) bool {
		ip, ok := a.(*net.IPNet)
		if !ok {
			return false
		}
		have, _ := netip.AddrFromSlice(ip.IP)
		return have.Unmap() == addr
	})
}
