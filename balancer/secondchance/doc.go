// Package secondchance passes packets of established connections on that routers bring to a member which does not
// own them, as they do when they spread connections anew, until they come to the one that does.
//
// A member owns a packet if its kernel has a socket for the connection. All else that is for a VIP and begins no connection is
// given to another member, unchanged, through a [Tunnel]. Its answers go to the client directly, as routers remember nothing.
//
// # The rule
//
// Each member has a number, a hash of its name, and members stand in a circle by number. A packet carries through the
// tunnel the number of the member that routers brought it to, its origin. A member passes a packet on to
// the next in the circle of whom it knows, unless that one is the origin or stands behind it: then it answers as
// it would without this package.
//
// # Why no packet visits a node twice
//
// Let the distance of a number be how far it is from the packet's origin, forward in the circle: that of the
// origin is 0, of all others more. A node passes on only to a number whose distance is greater than that of its own. And only
// the node with that number takes the packet in: it is the address on the tunnel's link, for which it is sent, and kernels drop
// what is for another address. So with each step the distance of the node where the packet is grows. A node has one
// number, and so one distance from the origin, and cannot be come to again. Nothing in this depends on what nodes
// believe of each other, nor on whether they agree; nodes only have to keep their numbers, and to leave the origin
// as it is. Two nodes with the same number are never both visited by the same packet. What comes by the tunnel leaves by no other link.
//
// If all nodes know the owner, none steps over it: it is the next of one of them at some time, or was the origin.
//
// # What outlives the process
//
// Nothing is passed on that the map of VIPs does not lead to, or that has come by the tunnel, and the map's elements end by
// themselves unless Run renews them. Who ends in order leaves nothing.
// See docs/decisions/0050-second-chance.md.
package secondchance
