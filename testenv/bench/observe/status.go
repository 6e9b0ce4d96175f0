package observe

import (
	"context"
	"encoding/json"

	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/lab"
)

// Status returns Herald's status, from the binary at this path in the node.
func Status(ctx context.Context, speaker *lab.Node, binary string) (s admin.Status, err error) {
	out, err := speaker.Run(ctx, binary, "status", "-o", "json")
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal([]byte(out), &s)
}
