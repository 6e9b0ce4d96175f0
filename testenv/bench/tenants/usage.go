package tenants

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"

	"github.com/herald-vip/herald/testenv/bench/observe"
	"github.com/herald-vip/herald/testenv/step"
)

// writes counts the writes of agent, manager and address writer in both clusters so
// far. It ignores Leases, Events and the status of the Tenant, which combines many
// changes.
func (s *stage) writes() (n int) {
	for _, cluster := range []string{s.Balancing.Name, s.acme.Name} {
		for line := range bytes.Lines(observe.AuditLog(filepath.Join(s.dir, cluster, "audit.log"))) {
			var r struct {
				User, ImpersonatedUser struct{ Username string }
				ObjectRef              struct{ Resource string }
			}
			step.Named("audit log", func() { step.Do(json.Unmarshal(line, &r)) })
			ours := strings.Contains(r.User.Username+r.ImpersonatedUser.Username, ":herald")
			if ours && !slices.Contains([]string{"leases", "events", "tenants"}, r.ObjectRef.Resource) {
				n++
			}
		}
	}
	return n
}
