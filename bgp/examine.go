package bgp

import "context"

// Examine opens a connection of its own to the peer, as a session of c would with
// password, TTL rules and source address, exchanges OPENs, and says in one sentence
// what keeps a session from coming up; empty if nothing does. It takes up to three
// seconds. The peer must have an address. While a [Server] has a session with the
// peer, the peer refuses a second one: ask the Server then.
func Examine(ctx context.Context, c Config, p Peer) string {
	return diagnose(ctx, c, p, p.Address, "")
}
