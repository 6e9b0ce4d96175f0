package flat

import (
	"fmt"
	"sync"

	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/speaker"
)

// Leases adapts the election to the speaker's interface.
type Leases struct {
	Election *election.Election
	Node     string
	Speaker  interface{ LeasesChanged() }

	transfers sync.Map // reasons of pending transfers, by VIP
}

// Campaign implements [speaker.Leases].
func (l *Leases) Campaign(vip string, claim speaker.Flat) {
	l.Election.Campaign(lease.Candidacy{Lease: vip, Priority: claim.Priority, Preempt: claim.Preempt})
}

// StepDown implements [speaker.Leases].
func (l *Leases) StepDown(vip string) {
	l.Election.StepDown(vip)
	l.transfers.Delete(vip)
}

// Forget implements [speaker.Leases].
func (l *Leases) Forget(vip string) { l.Election.Forget(vip) }

// Lease implements [speaker.Leases].
func (l *Leases) Lease(vip string) speaker.Lease {
	st := l.Election.Lease(vip)
	switch {
	case st.Holder == l.Node:
		why, _ := l.transfers.Load(vip)
		reason, _ := why.(string)
		return speaker.Lease{Until: st.Until, Transfer: reason}
	case st.Holder != "":
		return speaker.Lease{Reason: st.Holder + " holds the lease", Lost: st.Lost}
	}
	return speaker.Lease{Reason: "no holder: " + st.Why, Lost: st.Lost}
}

// Granted implements [election.Handler], like Lost and Transfer: each informs the speaker before it returns. Until the
// speaker has acted on a loss, the election keeps the lease from other members. The speaker reads the current leases.
func (l *Leases) Granted() { l.Speaker.LeasesChanged() }

// Lost implements [election.Handler].
func (l *Leases) Lost(lost []lease.Lost) {
	for _, e := range lost {
		l.transfers.Delete(e.Lease)
	}
	l.Speaker.LeasesChanged()
}

// Transfer implements [election.Handler].
func (l *Leases) Transfer(t lease.Transfer) {
	l.transfers.Store(t.Lease, fmt.Sprintf("handed over to %s: %s", t.To, t.Reason))
	l.Speaker.LeasesChanged()
}

// handler passes events of the election to Leases and Flat.
type handler struct {
	*Leases
	*Flat
}

// AliveChanged implements [election.Handler]: which nodes campaign depends on which are alive.
func (h handler) AliveChanged([]string) { h.Look() }

// MemberStatesChanged implements [election.Handler].
func (h handler) MemberStatesChanged(all []election.MemberState) {
	if !h.leaving.Load() {
		h.Options.MemberStates(all)
	}
}
