package daemon

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/election"
)

// bindFor is where this node takes part from: what the file says or, for one without
// a vote, the address that it reaches a member from, which stays what it was at first.
func (g *segment) bindFor(c *config.Config) (netip.AddrPort, error) {
	if c.Election.Bind.IsValid() {
		return c.Election.Bind, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.bind.Addr().IsValid() {
		return g.bind, nil
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c.Election.Members)) {
		conn, err := net.Dial("udp", c.Election.Members[name].String()) // which sends nothing
		if err != nil {
			errs = append(errs, err)
			continue
		}
		local := conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
		conn.Close()
		g.bind = netip.AddrPortFrom(local, 0) // the members' port
		return g.bind, nil
	}
	return netip.AddrPort{}, fmt.Errorf("election.bind is not set and cannot be guessed, as this node reaches no member: %w", errors.Join(errs...))
}

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
