package speaker

import (
	"net/netip"
	"time"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/internal/seconds"
)

// Status is one address of a VIP. Its JSON is part of the output of `herald status -o json`.
type Status struct {
	// Name is the VIP's.
	Name      string     `json:"name"`
	Address   netip.Addr `json:"address"`
	Interface string     `json:"interface"`
	// Stage is the stage that was decided, Since when it was reached, and Reason why.
	Stage  Stage     `json:"stage"`
	Since  time.Time `json:"since,omitzero"`
	Reason string    `json:"reason"`
	// Error says why the address falls short of its stage, or is empty. The speaker tries again.
	Error string `json:"error,omitempty"`
	// Peers are the names of the peers that are to get the route.
	Peers []string `json:"peers,omitempty"`
	// Kept reports that the address stays as the last resort although its checks fail ([VIP.Keep]).
	Kept bool `json:"kept,omitempty"`
	// Decided reports whether all checks have a result.
	Decided  bool         `json:"decided"`
	Announce Announcement `json:"announce"`
	// Table is the kernel's routing table that has the route, if Announce is ByKernel.
	Table int `json:"table,omitempty"`
	// Prefix is announced in place of the host route; unset if the host route is.
	Prefix netip.Prefix `json:"prefix,omitzero"`
	// LastWithdrawal is the last unplanned one, nil if there was none.
	LastWithdrawal *Withdrawal `json:"lastWithdrawal,omitempty"`

	// Service reports that the address is a Service's.
	Service bool `json:"-"`
	// Blocked is since when Error keeps the address from its stage, zero if it does not.
	Blocked time.Time `json:"-"`
}

// Route returns the prefix that is announced for the address.
func (s Status) Route() netip.Prefix {
	if s.Prefix.IsValid() {
		return s.Prefix
	}
	return netip.PrefixFrom(s.Address, s.Address.BitLen())
}

// Announcement is the way in which a VIP is announced.
type Announcement string

// The ways: routes to BGP peers, answers to ARP and NDP on a flat layer 2, and routes in a table of the kernel.
const (
	ByBGP    Announcement = "bgp"
	ByARP    Announcement = "arp"
	ByKernel Announcement = "kernel"
)

// Withdrawal is an unplanned withdrawal of an address.
type Withdrawal struct {
	// At is when the failure was first seen.
	At time.Time `json:"at"`
	// Took is the time from At until route and address were gone here; 0 until they are.
	Took seconds.Duration `json:"seconds"`
	// Reason is that of the failed check.
	Reason string `json:"reason"`
	// Done is when route and address were gone here.
	Done time.Time `json:"-"`
}

// Summary is everything the speaker announces or withholds.
type Summary struct {
	// Draining is why everything is withdrawn on purpose; empty if it is not.
	Draining string
	// Addresses are all addresses in the order of the configuration.
	Addresses []Status
}

// Draining is why everything is withdrawn on purpose; empty if it is not.
func (s *Speaker) Draining() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drain.Reason()
}

// Summary tells how everything stands.
func (s *Speaker) Summary() Summary {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := Summary{Draining: s.drain.Reason()}
	for _, u := range s.order {
		st := Status{
			Name: u.vip.Name, Service: u.vip.Service, Address: u.Addr, Interface: u.Interface, Announce: ByBGP,
			Stage: u.at.stage, Kept: u.lastResort && u.at.stage != Withdrawn, Decided: s.assessChecks(u).health != health.Unknown, Since: u.at.since, Reason: u.reason,
			Blocked: u.blocked, Peers: u.vip.Peers,
		}
		switch {
		case u.vip.Flat != nil:
			st.Announce = ByARP
		case u.vip.Table != nil:
			st.Announce, st.Table = ByKernel, u.vip.Table.Number
		}
		if u.err != nil {
			st.Error = u.err.Error()
		}
		if st.Peers == nil && st.Table == 0 {
			st.Peers = s.peers
		}
		if p := u.prefix(); p.Bits() < u.Addr.BitLen() {
			st.Prefix = p
		}
		if u.vip.Flat != nil && u.claims && u.at.stage == Withdrawn {
			st.Reason = s.flat.Leases.Lease(u.vip.Name).Reason // that another holds it now is no event here
		}
		if u.last != nil {
			last := *u.last
			st.LastWithdrawal = &last
		}
		sum.Addresses = append(sum.Addresses, st)
	}
	return sum
}
