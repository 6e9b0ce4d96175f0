package flat

import (
	"fmt"

	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/speaker"
)

// leases are the election in the speaker's terms.
type leases struct{ *Flat }

// Stand implements [speaker.Leases].
func (l leases) Stand(vip string, claim speaker.Flat) {
	l.election.Stand(lease.Candidacy{Lease: vip, Priority: claim.Priority, Preempt: claim.Preempt})
}

// Resign implements [speaker.Leases].
func (l leases) Resign(vip string) {
	l.election.Resign(vip)
	l.yields.Delete(vip)
}

// Forget implements [speaker.Leases].
func (l leases) Forget(vip string) { l.election.Forget(vip) }

// Lease implements [speaker.Leases].
func (l leases) Lease(vip string) speaker.Lease {
	st := l.election.Lease(vip)
	switch {
	case st.Holder == l.Node:
		why, _ := l.yields.Load(vip)
		reason, _ := why.(string)
		return speaker.Lease{Until: st.Until, Yield: reason}
	case st.Holder != "":
		return speaker.Lease{Reason: st.Holder + " holds the lease", Lost: st.Lost}
	}
	return speaker.Lease{Reason: "no holder: " + st.Why, Lost: st.Lost}
}

// handler passes on what the election says, before it returns: until the speaker has acted on a
// loss, the election keeps others from having the lease. The speaker looks at the leases as
// they are by then.
type handler struct{ *Flat }

// Granted implements [election.Handler].
func (h handler) Granted([]lease.Granted) { h.speaker.LeasesChanged() }

// Lost implements [election.Handler].
func (h handler) Lost(lost []lease.Lost) {
	for _, l := range lost {
		h.yields.Delete(l.Lease)
	}
	h.speaker.LeasesChanged()
}

// Yield implements [election.Handler].
func (h handler) Yield(y lease.Yield) {
	h.yields.Store(y.Lease, fmt.Sprintf("handed over to %s: %s", y.To, y.Reason))
	h.speaker.LeasesChanged()
}

// Met implements [election.Handler]: the nodes that are alive decide which of them stand.
func (h handler) Met([]string) { h.Look() }

// Offered implements [election.Handler].
func (h handler) Offered(all []election.Offered) {
	if !h.leaving.Load() {
		h.Options.Offered(all)
	}
}
