package observe

import (
	"context"
	"encoding/json"

	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/lab"
)

// Status is what Herald, whose binary has this path in the node, tells of itself.
func Status(ctx context.Context, speaker *lab.Node, binary string) (s admin.Status, err error) {
	out, err := speaker.Run(ctx, binary, "status", "-o", "json")
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal([]byte(out), &s)
}
