package metallb

import "github.com/herald-vip/herald/migrate"

// Table returns all fields of MetalLB, in the order of TABLES.md.
func Table() []migrate.Row {
	const (
		byLabels   = "an advertisement of a part of a pool's Services: give these Services their own pool, with serviceSelectors and its own addresses"
		advertised = "becomes a part of the AddressPools that it selects; without both fields of all pools"
	)
	return []migrate.Row{
		{In: kindPool, Names: []string{"addresses"}, Becomes: "`addresses`", Text: "in their canonical form"},
		{In: kindPool, Names: []string{"autoAssign"}, Becomes: "`autoAssign`"},
		{In: kindPool, Names: []string{"avoidBuggyIPs"}, Becomes: "`avoidBuggyIPs`"},
		{In: kindPool, Names: []string{"serviceAllocation.priority"}, Becomes: "`priority`", Text: "reversed, as Herald's highest is first, and as ranks: 0 for pools without `serviceAllocation`, 1 without a priority, 2 and more with a priority"},
		{In: kindPool, Names: []string{"serviceAllocation.namespaces"}, Becomes: "`namespaces`"},
		{In: kindPool, Names: []string{"serviceAllocation.namespaceSelectors"}, Becomes: "`namespaceSelectors`"},
		{In: kindPool, Names: []string{"serviceAllocation.serviceSelectors"}, Becomes: "`serviceSelectors`"},

		{In: kindOldPool, Names: []string{"protocol"}, Becomes: "`bgp`, `arp`"},
		{In: kindOldPool, Names: []string{"bgpAdvertisements"}, Becomes: "`bgp`", Text: "as a BGPAdvertisement; the rest is as in an IPAddressPool"},

		{In: kindBGP, Names: []string{"ipAddressPools"}, Becomes: "`bgp`", Text: advertised},
		{In: kindBGP, Names: []string{"ipAddressPoolSelectors"}, Becomes: "`bgp`", Text: "looked up in the labels of the pools"},
		{In: kindBGP, Names: []string{"aggregationLength"}, Becomes: "`bgp.aggregationLength`", Text: "a second one for the same pool, with another length or other attributes, is `to do`: Herald announces a pool in one way"},
		{In: kindBGP, Names: []string{"aggregationLengthV6"}, Becomes: "`bgp.aggregationLengthV6`"},
		{In: kindBGP, Names: []string{"localPref"}, Becomes: "`bgp.localPref`"},
		{In: kindBGP, Names: []string{"communities"}, Becomes: "`bgp.communities`, `bgp.largeCommunities`", Text: "names are looked up"},
		{In: kindBGP, Names: []string{"peers"}, Becomes: "`bgp.peers`"},
		{In: kindBGP, Names: []string{"nodeSelectors"}, Becomes: "`bgp.nodeSelectors`"},
		{In: kindBGP, Names: []string{"serviceSelectors"}, ToDo: true, Text: byLabels},

		{In: kindL2, Names: []string{"ipAddressPools"}, Becomes: "`arp`", Text: advertised},
		{In: kindL2, Names: []string{"ipAddressPoolSelectors"}, Becomes: "`arp`", Text: "looked up in the labels of the pools"},
		{In: kindL2, Names: []string{"interfaces"}, Becomes: "`arp.interfaces`", Text: "without them Herald answers on the link with the address's subnet, MetalLB on all"},
		{In: kindL2, Names: []string{"nodeSelectors"}, Becomes: "`arp.nodeSelectors`"},
		{In: kindL2, Names: []string{"serviceSelectors"}, ToDo: true, Text: byLabels},

		{In: kindPeer, Names: []string{"peerAddress"}, Becomes: "`address`"},
		{In: kindPeer, Names: []string{"interface"}, Becomes: "`interface`"},
		{In: kindPeer, Names: []string{"peerASN"}, Becomes: "`asn`"},
		{In: kindPeer, Names: []string{"dynamicASN"}, Becomes: "`asn`", Text: "internal is the node's own"},
		{In: kindPeer, Names: []string{"myASN"}, Becomes: "`localASN`"},
		{In: kindPeer, Names: []string{"localASN"}, Becomes: "`localASN`", Text: "instead of `myASN`: the router sees no other"},
		{In: kindPeer, Names: []string{"peerPort"}, Becomes: "`port`"},
		{In: kindPeer, Names: []string{"sourceAddress"}, Becomes: "`localAddress`"},
		{In: kindPeer, Names: []string{"holdTime"}, Becomes: "`holdTime`", Text: "3s by default"},
		{In: kindPeer, Names: []string{"keepaliveTime"}, Becomes: "`holdTime`", Text: "three times this, if there is no `holdTime`; Herald sends keepalives at a third"},
		{In: kindPeer, Names: []string{"password"}, Becomes: "`passwordSecretRef`", Text: "put it into a Secret by hand: a password is never printed"},
		{In: kindPeer, Names: []string{"passwordSecret.name"}, Becomes: "`passwordSecretRef.name`", Text: "copy the Secret to Herald's namespace"},
		{In: kindPeer, Names: []string{"passwordSecret.namespace"}, Becomes: "`passwordSecretRef`", Text: "a comment names it, as the source of the copy"},
		{In: kindPeer, Names: []string{"bfdProfile"}, Becomes: "`bfd`"},
		{In: kindPeer, Names: []string{"ebgpMultiHop"}, Becomes: "`multihop: 255`", Text: "FRR's; iBGP needs none. MetalLB's native mode reaches routers beyond the link without it: set it for them"},
		{In: kindPeer, Names: []string{"dualStackAddressFamily"}, Becomes: "`families`", Text: "both"},
		{In: kindPeer, Names: []string{"nodeSelectors"}, Becomes: "`nodeSelectors`"},
		{In: kindPeer, Names: []string{"routerID"}, Text: "the BGP identifier belongs to the node, not the session: Herald takes the node's first global IPv4 address, or bgp.routerID of its file"},
		{In: kindPeer, Names: []string{"connectTime"}, Becomes: "`connectRetry`", Text: "2s to 60s"},
		{In: kindPeer, Names: []string{"enableGracefulRestart"}, Idle: []string{"false"}, Text: "a stopping Herald marks its routes and withdraws them, so that routers leave it first: there is nothing to keep"},
		{In: kindPeer, Names: []string{"vrf"}, ToDo: true, Text: "Herald's sessions are in the main routing table: reach the router from there, or leave this peer to another speaker"},
		{In: kindPeer, Names: []string{"disableMP"}, Idle: []string{"false", "true"}, Text: "a session has the family of its address unless families says more"},

		{In: kindCommunity, Names: []string{"communities"}, Becomes: "`bgp.communities`", Text: "names are replaced by their values"},

		{In: kindBFD, Names: []string{"receiveInterval", "transmitInterval"}, Becomes: "`bfd.interval`", Text: "the longer of both; 300ms by default, as in FRR"},
		{In: kindBFD, Names: []string{"detectMultiplier"}, Becomes: "`bfd.multiplier`", Text: "3 by default; 2 to 50"},
		{In: kindBFD, Names: []string{"echoMode", "echoInterval"}, Idle: []string{"false"}, Text: "Herald sends no echoes: its control packets are as fast"},
		{In: kindBFD, Names: []string{"passiveMode"}, Idle: []string{"false"}, Text: "Herald begins the sessions: the router may be passive"},
		{In: kindBFD, Names: []string{"minimumTtl"}, Text: "multihop or ttlSecurity of the peer sets the lowest TTL that Herald accepts: lower that setting to raise it"},

		{In: kindService, Names: []string{"address-pool"}, Becomes: "`herald.dev/pool`", Text: "`metallb.io/` or `metallb.universe.tf/` in front"},
		{In: kindService, Names: []string{"loadBalancerIPs"}, Becomes: "`herald.dev/addresses`"},
		{In: kindService, Names: []string{"allow-shared-ip"}, Becomes: "`herald.dev/share`"},
		{In: kindService, Names: []string{"ip-allocated-from-pool"}, Text: "MetalLB's own remark: it may stay or go"},
	}
}
