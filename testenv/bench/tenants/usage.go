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

// writes counts what agent, manager and the writer of addresses have written in both clusters so far, but for Leases, Events and the status of
// the Tenant, which tells of many changes at once.
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
