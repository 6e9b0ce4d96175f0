package demo

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/herald-vip/herald/admin"
	"github.com/herald-vip/herald/testenv/lab"
)

// answering bounds the wait for a speaker's status: one that was frozen gives none.
const answering = time.Second

// sentOn is what the events of a speaker say when its node begins to send new connections on.
const sentOn = "new connections are sent on"

// bridged tells whom the master has sent new connections on to since then; empty if it has not,
// or its speaker does not answer.
func bridged(ctx context.Context, speaker *lab.Node, since time.Time) string {
	if !speaker.Running() {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, answering)
	defer cancel()
	out, err := speaker.Run(ctx, "/usr/local/bin/herald", "status", "-o", "json")
	var status admin.Status
	if err != nil || json.Unmarshal([]byte(out), &status) != nil {
		return ""
	}
	for _, e := range status.Events {
		if _, to, ok := strings.Cut(e.About, " to="); ok && e.What == sentOn && e.At.After(since) {
			return to
		}
	}
	return ""
}
