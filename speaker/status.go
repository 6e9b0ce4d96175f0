package speaker

import (
	"net/netip"
	"time"

	"github.com/herald-vip/herald/health"
)

// Status is one address of a VIP as it stands.
type Status struct {
	VIP       string
	Address   netip.Addr
	Interface string
	// Service says that the address is a Service's.
	Service bool
	// Flat says whether it is announced on a flat layer 2, by lease.
	Flat bool
	// Table is where it is announced in the kernel; nil if by BGP.
	Table *Table
	// Prefix is what is announced for it.
	Prefix netip.Prefix
	Stage  Stage
	// Kept says that it is there as the last resort though it fails ([VIP.Keep]).
	Kept bool
	// Decided says whether the checks have spoken.
	Decided bool
	// Since is when the stage was reached.
	Since time.Time
	// Reason says why the address is in its stage.
	Reason string
	// Error is what stands in the way of it, if anything, and Blocked since when; it is tried
	// again.
	Error   error
	Blocked time.Time
	// Peers are the names of those that are to be sent its route.
	Peers []string
	// LastWithdrawal is the last unplanned one, nil if there was none.
	LastWithdrawal *Withdrawal
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
			VIP: u.vip.Name, Service: u.vip.Service, Address: u.Addr, Interface: u.Interface, Flat: u.vip.Flat != nil,
			Stage: u.at.stage, Kept: u.kept && u.at.stage != Withdrawn, Decided: s.assessChecks(u).health != health.Unknown, Since: u.at.since, Reason: u.reason, Error: u.err,
			Blocked: u.blocked, Peers: u.vip.Peers, Table: u.vip.Table, Prefix: u.prefix(),
		}
		if st.Peers == nil && st.Table == nil {
			st.Peers = s.peers
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
