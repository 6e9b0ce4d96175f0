package speaker

import (
	"net/netip"
	"time"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/internal/seconds"
)

// Status is one address of a VIP. Its JSON is part of the output of `herald status -o json`.
type Status struct {
	// Name is the name of the VIP.
	Name      string     `json:"name"`
	Address   netip.Addr `json:"address"`
	Interface string     `json:"interface"`
	// Stage is the decided stage, Since the time of the decision, and Reason its cause.
	Stage  Stage     `json:"stage"`
	Since  time.Time `json:"since,omitzero"`
	Reason string    `json:"reason"`
	// Error is the error that keeps the address from its stage; empty means none. The speaker retries.
	Error string `json:"error,omitempty"`
	// Peers names the peers that the route is announced to.
	Peers []string `json:"peers,omitempty"`
	// Kept reports that the address stays as the last resort although its checks fail ([VIP.Keep]).
	Kept bool `json:"kept,omitempty"`
	// Decided reports whether all checks have a result.
	Decided  bool         `json:"decided"`
	Announce Announcement `json:"announce"`
	// Table is the number of the kernel table that has the route, if Announce is ByKernel.
	Table int `json:"table,omitempty"`
	// Prefix is announced in place of the host route; unset means the host route.
	Prefix netip.Prefix `json:"prefix,omitzero"`
	// LastWithdrawal is the last unplanned withdrawal; nil means none.
	LastWithdrawal *Withdrawal `json:"lastWithdrawal,omitempty"`

	// Service marks the address of a Service.
	Service bool `json:"-"`
	// Blocked is the time since which Error has kept the address from its stage; zero without an error.
	Blocked time.Time `json:"-"`
}

// Route returns the prefix that is announced for the address.
func (s Status) Route() netip.Prefix {
	if s.Prefix.IsValid() {
		return s.Prefix
	}
	return netip.PrefixFrom(s.Address, s.Address.BitLen())
}

// Announcement is the protocol that announces a VIP.
type Announcement string

// The protocols: BGP routes to peers, ARP and NDP on a flat layer 2, and routes in a kernel table.
const (
	ByBGP    Announcement = "bgp"
	ByARP    Announcement = "arp"
	ByKernel Announcement = "kernel"
)

// Withdrawal is an unplanned withdrawal of an address.
type Withdrawal struct {
	// At is the time at which the failure was first seen.
	At time.Time `json:"at"`
	// Took is the time from At to Done; 0 until then.
	Took seconds.Duration `json:"seconds"`
	// Reason is the reason of the failed check.
	Reason string `json:"reason"`
	// Done is the time at which route and address were gone on this node.
	Done time.Time `json:"-"`
}

// Summary describes all addresses that the speaker announces or withholds.
type Summary struct {
	// Draining is the reason of a drain; empty without one.
	Draining string
	// Addresses lists all addresses in the order of the configuration.
	Addresses []Status
}

// Draining returns the reason of a drain; empty without one.
func (s *Speaker) Draining() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drain.Reason()
}

// Summary returns the status of all addresses.
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
			st.Reason = s.flat.Leases.Lease(u.vip.Flat.Leases...).Reason // the holder may have changed without an event here
		}
		if u.last != nil {
			last := *u.last
			st.LastWithdrawal = &last
		}
		sum.Addresses = append(sum.Addresses, st)
	}
	return sum
}
