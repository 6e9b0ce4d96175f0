package observe

import (
	"bytes"
	"context"
	"encoding/json"
	"os"

	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/step"
)

// Status returns Herald's status, from the binary at this path in the node.
func Status(ctx context.Context, speaker *lab.Node, binary string) (s admin.Status, err error) {
	out, err := speaker.Run(ctx, binary, "status", "-o", "json")
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal([]byte(out), &s)
}

// AuditLog returns the complete lines of an API server's audit log.
func AuditLog(path string) []byte {
	text := step.Get(os.ReadFile(path))
	return text[:bytes.LastIndexByte(text, '\n')+1]
}
