package daemon

import (
	"slices"
	"strings"

	"github.com/herald-vip/herald/election"
)

// change says what the electorate is about to become, and who keeps it waiting;
// empty if it stays as it is.
func change(st election.Status) string {
	active, pending := st.Lease.Active, st.Lease.Pending
	if active == nil || pending == nil {
		return ""
	}
	var to, missing []string
	if !slices.Equal(active.Members, pending.Members) {
		to = append(to, "members "+strings.Join(pending.Members, ", "))
	}
	if active.Duration != pending.Duration {
		to = append(to, "lease "+pending.Duration.String())
	}
	if active.Quorum != pending.Quorum {
		to = append(to, "quorum "+pending.Quorum.String())
	}
	digest := pending.Digest()
	for _, m := range st.Members {
		has := m.Problem == "" && (m.Pending == digest || m.Active == digest)
		if m.Name != st.Lease.Self && !has && slices.Contains(pending.Members, m.Name) {
			missing = append(missing, m.Name)
		}
	}
	text := "to " + strings.Join(to, ", ") + ", once all of its members have it"
	if len(missing) > 0 {
		text += ": not yet " + strings.Join(missing, ", ")
	}
	return text
}

// ahead says that a member waits for a change that this node has not been given.
func ahead(st election.Status, m election.Member) string {
	if m.Name == st.Lease.Self || m.Problem != "" || m.Pending == 0 || st.Lease.Active == nil {
		return ""
	}
	if m.Pending == st.Lease.Active.Digest() || st.Lease.Pending != nil && m.Pending == st.Lease.Pending.Digest() {
		return ""
	}
	return "waits for a change of members, lease or quorum that this node was not given"
}
