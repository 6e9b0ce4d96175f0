package migrate

// metalLBRow is what becomes of a field of MetalLB's.
type metalLBRow struct {
	in      string   // the kind of object
	field   string   // its path in spec, or the name of an annotation
	idle    []string // values that ask for nothing Herald lacks
	becomes string   // Herald's field; empty if it is not carried over
	todo    bool     // not to have it takes something away that has to be had otherwise
	text    string   // what differs, or why there is no counterpart and what to do instead
}

// metalLBTable is all of MetalLB's fields, in the order of docs/migrating.md.
func metalLBTable() []metalLBRow {
	const (
		byLabels   = "an advertisement of a part of a pool's Services: give these a pool of their own, with serviceSelectors, and addresses that only it has"
		advertised = "becomes a part of the AddressPools that it selects; none of both is all of them"
	)
	return []metalLBRow{
		{in: kindPool, field: "addresses", becomes: "`addresses`", text: "in their canonical form"},
		{in: kindPool, field: "autoAssign", becomes: "`autoAssign`"},
		{in: kindPool, field: "avoidBuggyIPs", becomes: "`avoidBuggyIPs`"},
		{in: kindPool, field: "serviceAllocation.priority", becomes: "`priority`", text: "turned round, as Herald's highest is first, and as ranks: 0 for pools without `serviceAllocation`, 1 without a priority, 2 and more with one"},
		{in: kindPool, field: "serviceAllocation.namespaces", becomes: "`namespaces`"},
		{in: kindPool, field: "serviceAllocation.namespaceSelectors", becomes: "`namespaceSelectors`"},
		{in: kindPool, field: "serviceAllocation.serviceSelectors", becomes: "`serviceSelectors`"},

		{in: kindOldPool, field: "protocol", becomes: "`bgp`, `arp`"},
		{in: kindOldPool, field: "bgpAdvertisements", becomes: "`bgp`", text: "as a BGPAdvertisement; the rest is as in an IPAddressPool"},

		{in: kindBGP, field: "ipAddressPools", becomes: "`bgp`", text: advertised},
		{in: kindBGP, field: "ipAddressPoolSelectors", becomes: "`bgp`", text: "looked up in the labels of the pools"},
		{in: kindBGP, field: "aggregationLength", becomes: "`bgp.aggregationLength`", text: "a second one for the same pool, of another length or with other attributes, is to do: Herald announces a pool in one way"},
		{in: kindBGP, field: "aggregationLengthV6", becomes: "`bgp.aggregationLengthV6`"},
		{in: kindBGP, field: "localPref", becomes: "`bgp.localPref`"},
		{in: kindBGP, field: "communities", becomes: "`bgp.communities`, `bgp.largeCommunities`", text: "names are looked up"},
		{in: kindBGP, field: "peers", becomes: "`bgp.peers`"},
		{in: kindBGP, field: "nodeSelectors", becomes: "`bgp.nodeSelectors`"},
		{in: kindBGP, field: "serviceSelectors", todo: true, text: byLabels},

		{in: kindL2, field: "ipAddressPools", becomes: "`arp`", text: advertised},
		{in: kindL2, field: "ipAddressPoolSelectors", becomes: "`arp`", text: "looked up in the labels of the pools"},
		{in: kindL2, field: "interfaces", becomes: "`arp.interfaces`", text: "without them Herald answers on the link whose subnet holds the address, and MetalLB on all"},
		{in: kindL2, field: "nodeSelectors", becomes: "`arp.nodeSelectors`"},
		{in: kindL2, field: "serviceSelectors", todo: true, text: byLabels},

		{in: kindPeer, field: "peerAddress", becomes: "`address`"},
		{in: kindPeer, field: "interface", becomes: "`interface`"},
		{in: kindPeer, field: "peerASN", becomes: "`asn`"},
		{in: kindPeer, field: "dynamicASN", becomes: "`asn`", text: "internal is the own one; external is to be filled in"},
		{in: kindPeer, field: "myASN", becomes: "`localASN`"},
		{in: kindPeer, field: "localASN", becomes: "`localASN`", text: "instead of `myASN`: the router sees no other"},
		{in: kindPeer, field: "peerPort", becomes: "`port`"},
		{in: kindPeer, field: "sourceAddress", becomes: "`localAddress`"},
		{in: kindPeer, field: "holdTime", becomes: "`holdTime`", text: "3s unless set"},
		{in: kindPeer, field: "keepaliveTime", becomes: "`holdTime`", text: "three times it, if there is no `holdTime`; Herald's keepalives are sent at a third"},
		{in: kindPeer, field: "password", becomes: "`passwordSecretRef`", text: "to be put into a Secret by hand: a password is never printed"},
		{in: kindPeer, field: "passwordSecret.name", becomes: "`passwordSecretRef.name`", text: "the Secret is to be copied to Herald's namespace"},
		{in: kindPeer, field: "passwordSecret.namespace", becomes: "`passwordSecretRef`", text: "said in a comment: it is where to copy from"},
		{in: kindPeer, field: "bfdProfile", becomes: "`bfd`"},
		{in: kindPeer, field: "ebgpMultiHop", becomes: "`multihop: 255`", text: "FRR's; iBGP needs none. MetalLB's native mode reaches routers beyond the link without it: set it for those"},
		{in: kindPeer, field: "dualStackAddressFamily", becomes: "`families`", text: "both"},
		{in: kindPeer, field: "nodeSelectors", becomes: "`nodeSelectors`"},
		{in: kindPeer, field: "routerID", text: "the BGP identifier is a node's and not a session's: Herald takes the node's first global IPv4 address, or bgp.routerID of its file"},
		{in: kindPeer, field: "connectTime", text: "Herald tries again after 2s, or bgp.connectRetry of the file"},
		{in: kindPeer, field: "enableGracefulRestart", idle: []string{"false"}, text: "a Herald that stops marks its routes and withdraws them, so that routers leave it before it goes: there is nothing to keep"},
		{in: kindPeer, field: "vrf", todo: true, text: "Herald's sessions are in the main routing table: reach the router from there, or leave this peer to something else"},
		{in: kindPeer, field: "disableMP", idle: []string{"false", "true"}, text: "a session has the family of its address unless families says more"},

		{in: kindCommunity, field: "communities", becomes: "`bgp.communities`", text: "names are replaced by what they stand for"},

		{in: kindBFD, field: "receiveInterval", becomes: "`bfd.interval`", text: "the longer of both; 300ms unless set, as FRR has it"},
		{in: kindBFD, field: "transmitInterval", becomes: "`bfd.interval`"},
		{in: kindBFD, field: "detectMultiplier", becomes: "`bfd.multiplier`", text: "3 unless set; 2 to 50"},
		{in: kindBFD, field: "echoMode", idle: []string{"false"}, text: "Herald sends no echoes: its control packets are as fast as those would be"},
		{in: kindBFD, field: "echoInterval", text: "Herald sends no echoes: its control packets are as fast as those would be"},
		{in: kindBFD, field: "passiveMode", idle: []string{"false"}, text: "Herald begins sessions by itself: the router may be passive"},
		{in: kindBFD, field: "minimumTtl", text: "the least TTL that Herald takes follows from multihop or ttlSecurity of the peer: lower that to raise it"},

		{in: kindService, field: "address-pool", becomes: "`herald.dev/pool`", text: "`metallb.io/` or `metallb.universe.tf/` in front"},
		{in: kindService, field: "loadBalancerIPs", becomes: "`herald.dev/addresses`"},
		{in: kindService, field: "allow-shared-ip", becomes: "`herald.dev/share`"},
		{in: kindService, field: "ip-allocated-from-pool", text: "MetalLB's own remark: it may stay or go"},
	}
}
