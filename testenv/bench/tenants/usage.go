package tenants

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// writes counts the writes of agent, manager and address writer in both clusters so
// far. It ignores Leases, Events and the status of the Tenant, which combines many
// changes.
func (s *stage) writes() (n int, err error) {
	for _, cluster := range []string{s.Balancing.Name, s.acme.Name} {
		text, err := os.ReadFile(filepath.Join(s.dir, cluster, "audit.log"))
		if err != nil {
			return 0, err
		}
		for line := range bytes.Lines(text[:bytes.LastIndexByte(text, '\n')+1]) {
			var r struct {
				User, ImpersonatedUser struct{ Username string }
				ObjectRef              struct{ Resource string }
			}
			if err := json.Unmarshal(line, &r); err != nil {
				return 0, fmt.Errorf("audit log: %w", err)
			}
			ours := strings.Contains(r.User.Username+r.ImpersonatedUser.Username, ":herald")
			if ours && !slices.Contains([]string{"leases", "events", "tenants"}, r.ObjectRef.Resource) {
				n++
			}
		}
	}
	return n, nil
}
