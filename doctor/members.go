package doctor

import (
	"fmt"
	"slices"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/doctor/facts"
	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/status/admin"
)

// examineMembers examines whether the other members can be reached, or are heard by a running Herald.
func examineMembers(c *config.Config, f *facts.Facts, out *findings) {
	if f.Running != nil && f.Running.Election != nil {
		membersHeard(c, f.Running.Election, out)
		return
	}
	others, reachable := facts.Others(c), 1 // this node
	for _, name := range others {
		if tcp := f.Members[name].TCP; tcp == facts.Accepted || tcp == facts.Refused {
			reachable++
		}
	}
	cutOff := Warning
	why, refused := "Without it the VIP survives the loss of fewer nodes.", "It does not vote until Herald runs there."
	if !c.Flat() { // without votes: members only exchange advertisements
		why, refused = "This node does not learn whether it serves.", "It advertises nothing until Herald runs there."
		if reachable == 1 && len(others) > 0 {
			cutOff, why = Blocker, "This node learns no member's state."
		}
	} else if members := len(others) + 1; c.Election != nil && !c.Election.Open() && c.Election.Quorum == electorate.Majority && reachable < members/2+1 {
		cutOff = Blocker
		why = fmt.Sprintf("Of %d members %d can be reached, this one included, and %d must vote: no node can hold the VIP.", members, reachable, members/2+1)
	}
	for _, name := range others {
		at := c.Election.Members[name]
		subject := fmt.Sprintf("%s %s", name, at)
		switch r := f.Members[name]; {
		case r.TCP == facts.Unasked:
		case r.TCP == facts.Accepted && r.UDP == facts.Refused:
			out.blocker(subject, "accepts TCP, but UDP is refused",
				"Votes use UDP.", fmt.Sprintf("let UDP port %d through on %s and on the path", at.Port(), name))
		case r.TCP == facts.Accepted && r.UDP == facts.Silent:
			out.fine(subject, "accepts TCP; UDP is not refused; once Herald runs here, herald status shows whether it arrives")
		case r.TCP == facts.Accepted:
			out.fine(subject, "accepts TCP; UDP was not tried")
		case r.TCP == facts.Refused:
			out.warning(subject, "the node answers, but nothing listens on the port",
				refused, "start Herald on "+name+"; if it runs, see its election.bind and the filter there")
		case r.TCP == facts.Silent:
			out.add(cutOff, subject, "does not answer: it is down, or a filter drops the packets",
				why, fmt.Sprintf("ping %s; let TCP and UDP port %d through between the members", at.Addr(), at.Port()))
		default:
			out.add(cutOff, subject, "unreachable: no route, or no answer to ARP or NDP",
				why, fmt.Sprintf("ip route get %s; check the address in election.members", at.Addr()))
		}
	}
}

// membersHeard reports the members as a running Herald sees them.
func membersHeard(c *config.Config, e *admin.Election, out *findings) {
	if e.Problem != "" {
		out.blocker(c.NodeName, "takes no part in the election: "+e.Problem, "It neither votes nor holds a VIP.", "herald status; docs/troubleshooting.md")
	}
	others := func(m lease.Member) bool { return m.Voter && m.Name != c.NodeName }
	if c.Election != nil && c.Election.Bootstrap && slices.ContainsFunc(e.Members, others) {
		out.warning("election.bootstrap", "is still set, and the cluster exists",
			"Without its disk and without a packet from the others, this node would begin a second cluster.", "remove election.bootstrap here")
	}
	for _, m := range e.Members {
		subject := fmt.Sprintf("%s %s", m.Name, m.Address)
		switch {
		case m.Self:
		case m.Alive && m.Problem == "":
			out.fine(subject, "its votes arrive")
		case m.Problem != "" && m.Voter && !m.Alive:
			out.warning(subject, m.Problem, "Its vote does not count here.", "start herald on "+m.Name+"; if its address has changed, give the new one in election of both nodes")
		case m.Problem != "":
			out.warning(subject, m.Problem, "Its vote does not count here.", "herald status on "+m.Name)
		default:
			out.warning(subject, "no votes arrive from it", "Its vote does not count here.", fmt.Sprintf("herald status on %s; let UDP port %d through", m.Name, m.Address.Port()))
		}
	}
}

// examinePassing reports whether a running Herald forwards packets of connections that belong to other members.
func examinePassing(_ *config.Config, f *facts.Facts, out *findings) {
	if f.Running == nil || f.Running.Passing == nil {
		return
	}
	const subject = "second chance"
	switch p := f.Running.Passing; {
	case p.Error != "":
		out.warning(subject, p.Error, "Herald answers packets of other members' connections with a reset if it cannot pass them on.", "follow the message; docs/connections.md lists the requirements")
	case len(p.Members) == 0:
		out.fine(subject, "no other member passes packets on")
	default:
		out.fine(subject, "packets of other members' connections are passed on to "+list(p.Members))
	}
}
