package daemon

import (
	"fmt"

	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/lease"
	"github.com/herald-vip/herald/speaker"
)

// leases are the election in the speaker's terms.
type leases struct{ *segment }

var (
	_ speaker.Leases    = leases{}
	_ election.Observer = (*segment)(nil)
)

func (l leases) Stand(vip string, claim speaker.Flat) {
	l.election.Stand(lease.Candidacy{Lease: vip, Priority: claim.Priority, Preempt: claim.Preempt})
}

func (l leases) Resign(vip string) {
	l.election.Resign(vip)
	l.yields.Delete(vip)
}

func (l leases) Forget(vip string) { l.election.Forget(vip) }

func (l leases) Lease(vip string) speaker.Lease {
	st := l.election.Lease(vip)
	switch {
	case st.Holder == l.node:
		why, _ := l.yields.Load(vip)
		reason, _ := why.(string)
		return speaker.Lease{Until: st.Until, Yield: reason}
	case st.Holder != "":
		return speaker.Lease{Reason: st.Holder + " holds the lease", Lost: st.Lost}
	}
	return speaker.Lease{Reason: "no holder: " + st.Why, Lost: st.Lost}
}

// Granted implements [election.Observer]. Whatever happened, the speaker looks
// at the leases as they are by then.
func (g *segment) Granted([]lease.Granted) { g.changed() }

// Lost implements [election.Observer].
func (g *segment) Lost(lost []lease.Lost) {
	for _, l := range lost {
		g.yields.Delete(l.Lease)
	}
	g.changed()
}

// Met implements [election.Observer]: who is alive decides who stands.
func (g *segment) Met([]string) { g.reconsider() }

// Offered implements [election.Observer]: it acts before it returns.
func (g *segment) Offered(all []election.Offered) {
	if !g.leaving.Load() {
		g.offered(all)
	}
}

// Yield implements [election.Observer].
func (g *segment) Yield(y lease.Yield) {
	g.yields.Store(y.Lease, fmt.Sprintf("handed over to %s: %s", y.To, y.Reason))
	g.changed()
}
