package tenants

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// writes counts what was written in both clusters so far, Leases, Events and what the lab itself writes left out.
func (s *stage) writes() (n int, err error) {
	for _, cluster := range []string{s.Balancing.Name, s.acme.Name} {
		text, err := os.ReadFile(filepath.Join(s.dir, cluster, "audit.log"))
		if err != nil {
			return 0, err
		}
		for line := range bytes.Lines(text[:bytes.LastIndexByte(text, '\n')+1]) {
			var r struct{ ObjectRef struct{ Resource string } }
			if err := json.Unmarshal(line, &r); err != nil {
				return 0, fmt.Errorf("audit log: %w", err)
			}
			if r.ObjectRef.Resource != "leases" && r.ObjectRef.Resource != "events" {
				n++
			}
		}
	}
	return n, nil
}
