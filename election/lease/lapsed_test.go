package lease_test

import (
	"testing"
	"time"

	"github.com/herald-vip/herald/election/lease"
)

// TestLapsedLeaseIsGivenBack: a holder that sends but does not receive is granted renewals without knowing it.
// When it steps down from the lapsed lease, no other member waits for the last renewal to end.
func TestLapsedLeaseIsGivenBack(t *testing.T) {
	for resigns, most := range map[bool]time.Duration{true: duration, false: 2 * duration} {
		c := newCluster(t, "m1", "m2", "m3")
		c.campaign(vip)
		deaf := c.awaitHolder(3 * duration)
		c.run(2 * duration)
		for _, other := range c.others(deaf) {
			c.cut[[2]string{other, deaf}] = true
		}
		cut := c.now
		c.await(duration, "the lease lapses", func() bool { return c.holder(vip) != deaf })
		if resigns {
			c.stepDown(deaf, vip)
			c.nodes[deaf].Campaign(c.now, lease.Candidacy{Lease: vip})
		}
		c.await(2*duration, "another has it", func() bool { h := c.holder(vip); return h != "" && h != deaf })
		if took := c.now.Sub(cut); took > most || !resigns && took < duration {
			t.Errorf("stepped down %v: another has the lease after %v", resigns, took)
		}
	}
}
