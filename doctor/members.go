package doctor

import (
	"fmt"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/doctor/facts"
	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/status/admin"
)

// examineMembers looks at whether votes get through.
func examineMembers(c *config.Config, f *facts.Facts, out *findings) {
	if f.Running != nil && f.Running.Election != nil {
		membersHeard(c, f.Running.Election, out)
		return
	}
	others, there := facts.Others(c), 1 // this node
	for _, name := range others {
		if tcp := f.Members[name].TCP; tcp == facts.Accepted || tcp == facts.Refused {
			there++
		}
	}
	cutOff := Warning
	why, refused := "Without it the VIP survives the loss of fewer nodes.", "It does not vote until Herald runs there."
	if !c.Flat() { // nobody votes, and all tell each other what they serve
		why, refused = "Each tells what it serves; of it nothing is heard here.", "It tells nothing of what it serves until Herald runs there."
		if there == 1 && len(others) > 0 {
			cutOff, why = Blocker, "This node is told by nobody who serves."
		}
	} else if members := len(others) + 1; c.Election != nil && !c.Election.Open() && c.Election.Quorum == electorate.Majority && there < members/2+1 {
		cutOff = Blocker
		why = fmt.Sprintf("Of %d members %d can be reached, this one among them, and %d have to vote: nobody can hold the VIP.", members, there, members/2+1)
	}
	for _, name := range others {
		at := c.Election.Members[name]
		subject := fmt.Sprintf("%s %s", name, at)
		switch r := f.Members[name]; {
		case r.TCP == facts.Unasked:
		case r.TCP == facts.Accepted && r.UDP == facts.Refused:
			out.blocker(subject, "accepts TCP, but UDP is refused",
				"Votes go by UDP.", fmt.Sprintf("let UDP port %d through on %s, and what lies between", at.Port(), name))
		case r.TCP == facts.Accepted && r.UDP == facts.Silent:
			out.fine(subject, "accepts TCP; UDP is not refused, and whether it arrives herald status tells once Herald runs here")
		case r.TCP == facts.Accepted:
			out.fine(subject, "accepts TCP; UDP was not tried")
		case r.TCP == facts.Refused:
			out.warning(subject, "the node is there, and nothing listens on the port",
				refused, "start Herald on "+name+"; if it runs, see its election.bind and the filter there")
		case r.TCP == facts.Silent:
			out.add(cutOff, subject, "does not answer: it is down, or a filter drops the packets",
				why, fmt.Sprintf("ping %s; let TCP and UDP port %d through between the members", at.Addr(), at.Port()))
		default:
			out.add(cutOff, subject, "unreachable: no route, or nobody answers ARP or NDP for it",
				why, fmt.Sprintf("ip route get %s; see that the address in election.members is right", at.Addr()))
		}
	}
}

// membersHeard is what a running Herald knows better.
func membersHeard(c *config.Config, e *admin.Election, out *findings) {
	if e.Problem != "" {
		out.blocker(c.NodeName, "takes no part in the election: "+e.Problem, "It neither votes nor holds a VIP.", "herald status; docs/troubleshooting.md")
	}
	for _, m := range e.Members {
		subject := fmt.Sprintf("%s %s", m.Name, m.Address)
		switch {
		case m.Self:
		case m.Alive && m.Reason == "":
			out.fine(subject, "its votes are heard")
		case m.Reason != "":
			out.warning(subject, m.Reason, "Its vote does not count here.", "herald status on "+m.Name)
		default:
			out.warning(subject, "not heard", "It does not vote.", fmt.Sprintf("herald status on %s; let UDP port %d through", m.Name, m.Address.Port()))
		}
	}
}

// examinePassing looks at whether packets of others' connections are passed on, which only a running Herald knows.
func examinePassing(_ *config.Config, f *facts.Facts, out *findings) {
	if f.Running == nil || f.Running.Passing == nil {
		return
	}
	const subject = "second chance"
	switch p := f.Running.Passing; {
	case p.Error != "":
		out.warning(subject, p.Error, "Packets of others' connections that are not passed on are answered with a reset.", "as it says; docs/connections.md has what it takes")
	case len(p.Members) == 0:
		out.fine(subject, "no other member says that it passes packets on")
	default:
		out.fine(subject, "packets of others' connections are passed on to "+list(p.Members))
	}
}
