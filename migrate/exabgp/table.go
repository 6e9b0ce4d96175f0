package exabgp

import "github.com/herald-vip/herald/migrate"

// Sections of the configuration.
const (
	atTop      = ""
	inNeighbor = "neighbor"
	inProcess  = "process"
	inOption   = "healthcheck"
)

// Table returns all known settings, in the order of TABLES.md. The first name of a converted option is the one in its notes.
func Table() []migrate.Row {
	const (
		own     = "concerns ExaBGP's own process"
		routes  = "Herald announces only VIPs with passing checks: make the route a VIP with a check, or leave it to another speaker"
		scripts = "Herald runs no scripts when a VIP comes or goes: `herald status -o json` and the metrics list announced VIPs"
		setup   = "Herald adds and removes the addresses itself: leave them out of the network configuration"
		opens   = "Herald opens its sessions: for sessions that the router opens, set bgp.listen"
		state   = "attributes do not change with the state: a failing VIP is withdrawn, or has the worst metric"
	)
	return []migrate.Row{
		{In: atTop, Names: []string{"neighbor"}, Becomes: "`bgp.peers`"},
		{In: atTop, Names: []string{"process"}, Becomes: "`vips`, `checks`", Text: "if it runs ExaBGP's healthcheck"},
		{In: atTop, Names: []string{"template"}, Becomes: "`bgp.peers`", Text: "of neighbors that inherit it"},

		{In: inProcess, Names: []string{"run"}, Becomes: "`vips`, `checks`", Text: "by the options of healthcheck, below"},
		{In: inProcess, Names: []string{"encoder", "respawn"}, Text: "Herald checks by itself, without a process"},

		{In: inNeighbor, Names: []string{"local-as"}, Becomes: "`bgp.asn`", Text: "the same for all"},
		{In: inNeighbor, Names: []string{"peer-as"}, Becomes: "`bgp.peers[].asn`"},
		{In: inNeighbor, Names: []string{"router-id"}, Becomes: "`bgp.routerID`", Text: "the node's own: different on each"},
		{In: inNeighbor, Names: []string{"local-address"}, Becomes: "`bgp.peers[].localAddress`"},
		{In: inNeighbor, Names: []string{"hold-time"}, Becomes: "`bgp.peers[].holdTime`", Text: "3s by default, 180s in ExaBGP"},
		{In: inNeighbor, Names: []string{"md5-password"}, Becomes: "`bgp.peers[].passwordFile`", Text: "write it to a file by hand: a password is never printed"},
		{In: inNeighbor, Names: []string{"connect"}, Becomes: "`bgp.peers[].port`"},
		{In: inNeighbor, Names: []string{"outgoing-ttl"}, Becomes: "`bgp.peers[].multihop`", Text: "of eBGP, without `incoming-ttl`; 1 is the default of both"},
		{In: inNeighbor, Names: []string{"incoming-ttl"}, Becomes: "`bgp.peers[].ttlSecurity`", Text: "hops: 256 less the TTL"},
		{In: inNeighbor, Names: []string{"family"}, Becomes: "`bgp.peers[].families`", Text: "both without it, as in ExaBGP; Herald has unicast only"},
		{In: inNeighbor, Names: []string{"api"}, Becomes: "`vips[].peers`", Text: "a VIP goes to the neighbors that name its process; with `processes-match` to all"},
		{In: inNeighbor, Names: []string{"inherit"}, Becomes: "`bgp.peers`"},
		{In: inNeighbor, Names: []string{"md5-base64"}, Idle: []string{"false"}, ToDo: true, Text: "the file has the password itself: decode it"},
		{In: inNeighbor, Names: []string{"tcp-ao"}, ToDo: true, Text: "Herald has TCP MD5, see bgp.peers[].passwordFile, and not TCP-AO"},
		{In: inNeighbor, Names: []string{"static", "announce"}, ToDo: true, Text: routes},
		{In: inNeighbor, Names: []string{"flow", "l2vpn", "operational", "nexthop", "add-path"}, ToDo: true, Text: "Herald announces only unicast routes to VIPs: leave it to another speaker"},
		{In: inNeighbor, Names: []string{"passive", "listen"}, Text: opens},
		{In: inNeighbor, Names: []string{"source-interface"}, Text: "Herald's sessions begin at an address: if the kernel's choice is wrong, set localAddress of the peer to an address of this link"},
		{In: inNeighbor, Names: []string{"md5-ip", "local-link-local"}, Text: "Herald uses the addresses of the session"},
		{In: inNeighbor, Names: []string{"description", "host-name", "domain-name"}, Text: "logs and metrics name a peer by its address"},
		{In: inNeighbor, Names: []string{"capability", "group-updates", "auto-flush", "adj-rib-in", "adj-rib-out", "manual-eor", "rate-limit"}, Text: "Herald chooses its capabilities and its pace of sending"},

		{In: inOption, Names: []string{"--config", "-F"}, Becomes: "`vips`, `checks`", Text: "give the file after ExaBGP's; options of the command line take precedence"},
		{In: inOption, Names: []string{"--name", "-n"}, Becomes: "`vips[].name`, `checks[].name`", Text: "by default the process's"},
		{In: inOption, Names: []string{"--command", "--cmd", "-c"}, Becomes: "`checks[].exec`, `checks[].http`, `checks[].tcp`", Text: "http and tcp of curl and nc; make a line for a shell a script"},
		{In: inOption, Names: []string{"--interval", "-i"}, Text: "Herald checks at the pace of --fast-interval, so that it decides no later: see checks[].interval"},
		{In: inOption, Names: []string{"--fast-interval", "-f"}, Becomes: "`checks[].interval`", Text: "1s by default, for an exec check; others have Herald's own pace"},
		{In: inOption, Names: []string{"--timeout", "-t"}, Becomes: "`checks[].timeout`", Text: "5s by default, for an exec check"},
		{In: inOption, Names: []string{"--rise"}, Becomes: "`checks[].rise`", Text: "3 by default, for an exec check"},
		{In: inOption, Names: []string{"--fall"}, Becomes: "`checks[].fall`", Text: "3 by default, for an exec check"},
		{In: inOption, Names: []string{"--disable"}, Becomes: "`checks[].file`, `checks[].not: true`"},
		{In: inOption, Names: []string{"--user"}, Becomes: "`checks[].exec.user`", Text: "root is refused"},
		{In: inOption, Names: []string{"--ip"}, Becomes: "`vips[].addresses`, `vips[].prefixes`", Text: "a VIP for each, unless `--increase` is 0, as their metrics differ; fill in the addresses in a prefix"},
		{In: inOption, Names: []string{"--label"}, Becomes: "`vips[].addresses`", Text: "fill it in without `--ip`; Herald sets no labels"},
		{In: inOption, Names: []string{"--ip-ifname"}, ToDo: true, Text: "Herald puts VIPs on lo unless vips[].interface says otherwise: write the link there if you need it"},
		{In: inOption, Names: []string{"--neighbor"}, Becomes: "`vips[].peers`"},
		{In: inOption, Names: []string{"--next-hop", "-N"}, ToDo: true, Text: "in Herald it belongs to the peer, by default the session's own address: see bgp.peers[].nextHop4 and nextHop6"},
		{In: inOption, Names: []string{"--up-metric"}, Becomes: "`vips[].med`", Text: "100 by default"},
		{In: inOption, Names: []string{"--increase"}, Becomes: "`vips[].med`", Text: "by default 1 more for each address"},
		{In: inOption, Names: []string{"--start-ip"}, Becomes: "`vips[].med`", Text: "the address with the lowest"},
		{In: inOption, Names: []string{"--withdraw-on-down"}, Boolean: true, Becomes: "`vips[].onFailure`", Text: "without it `demote`"},
		{In: inOption, Names: []string{"--local-preference"}, Becomes: "`vips[].localPref`", Text: "refused if no peer is iBGP: then leave it out"},
		{In: inOption, Names: []string{"--community"}, Becomes: "`vips[].communities`"},
		{In: inOption, Names: []string{"--large-community"}, Becomes: "`vips[].largeCommunities`"},
		{In: inOption, Names: []string{"--as-path"}, Becomes: "`vips[].prepend`", Text: "if it repeats the own ASN"},
		{In: inOption, Names: []string{"--down-metric", "--disabled-metric", "--disabled-community", "--up-as-path", "--down-as-path", "--disabled-as-path"}, Text: state},
		{In: inOption, Names: []string{"--extended-community", "--path-id"}, ToDo: true, Text: "Herald's routes have none: if routers use it, let them use a community"},
		{In: inOption, Names: []string{"--deaggregate-networks"}, Boolean: true, ToDo: true, Text: "list the addresses of the prefix in vips[].addresses, and leave prefixes out"},
		{In: inOption, Names: []string{"--ip-setup", "--no-ip-setup", "--dynamic-ip-setup", "--label-exact-match", "--sudo"}, Boolean: true, Text: setup},
		{In: inOption, Names: []string{"--group"}, Text: "a command has the primary group of its user"},
		{In: inOption, Names: []string{"--execute", "--up-execute", "--down-execute", "--disabled-execute"}, ToDo: true, Text: scripts},
		{In: inOption, Names: []string{"--debounce", "--no-ack", "-a", "--silent", "-s", "--debug", "-d", "--no-syslog"}, Boolean: true, Text: own},
		{In: inOption, Names: []string{"--syslog-facility", "-sF", "--pid", "-p"}, Text: own},
	}
}
