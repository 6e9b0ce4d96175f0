// Package secondchance passes misrouted packets on to the member that owns their connection. Routers misroute packets of established
// connections when the set of announcing members changes and they spread flows anew.
//
// The owning member has a socket for the connection in its kernel. Any other packet to a VIP that begins no connection is
// passed unchanged through a tunnel to another member. The owning member answers the client directly, as routers keep no state.
//
// # The rule
//
// Each member has a number, a hash of its name, and the members form a ring ordered by number. In the tunnel a packet carries the
// number of its ingress member, which received it from a router. A member passes the packet on to the next known member of the
// ring. If that is the ingress member or lies beyond it, the member answers as it would without this package.
//
// # Why no packet visits a node twice
//
// Let the distance of a number be the number of steps from the packet's ingress member forward along the ring: 0 for the ingress
// member, more for all others. A node passes a packet only to a number at a greater distance than its own. Only the node with
// that number receives it: the packet is sent to a MAC made of the number, and kernels drop packets for other MACs. So
// the distance grows with each step. A node has one number, hence one distance, and is not visited again.
//
// This does not depend on what nodes know of each other, or on their agreement. Nodes only have to keep their numbers and leave the
// packet's ingress member unchanged. A packet visits at most one of two nodes with the same number. A packet from the tunnel
// leaves by no other link.
//
// If all nodes know the owning member, no node skips it: it is the ingress member, or the next one of some node on the way.
//
// # What outlives the process
//
// Only packets to addresses in the map of VIPs, and packets from the tunnel, are passed on. The map's elements expire unless Run
// renews them. Run removes all when it ends. See docs/decisions/0050-second-chance.md.
package secondchance
