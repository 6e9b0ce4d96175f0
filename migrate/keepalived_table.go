package migrate

import (
	"slices"
	"strings"
)

// Where in keepalived.conf a keyword is.
const (
	atTop      = ""
	inGlobals  = "global_defs"
	inInstance = "vrrp_instance"
	inGroup    = "vrrp_sync_group"
	inScript   = "vrrp_script"
	inServer   = "virtual_server"
	inReal     = "real_server"
	inCheck    = "TCP_CHECK, HTTP_GET, SSL_GET"
	inURL      = "url"
)

// keepalivedRow is what becomes of some keywords of keepalived.conf.
type keepalivedRow struct {
	in       string
	keywords []string // one that ends in * stands for all that begin so
	becomes  string   // Herald's fields; empty if they are not carried over
	todo     bool     // not to have it takes something away that has to be had otherwise
	text     string   // what differs, or why there is no counterpart and what to do instead
}

// keepalivedTable is all keywords that are known, in the order of docs/migrating.md. The first row that fits counts.
func keepalivedTable() []keepalivedRow {
	const (
		network = "Herald configures VIPs and nothing else: leave it to the system's network configuration"
		lvs     = "Herald balances by nftables, and LVS plays no part: of a balancer see balancers[]"
		pace    = "Herald checks every 200ms and waits 300ms, and two failures decide, or one refused connection: to keep the pace, set interval, timeout, rise and fall in balancers[].check"
		even    = "Herald gives all servers that serve the same share of new connections"
		scripts = "Herald runs no scripts when a VIP moves: `herald status -o json` and the metrics say who holds it"
		mail    = "Herald sends no mail: alert on its metrics"
		votes   = "belongs to VRRP, which Herald does not speak: see election"
		process = "is about keepalived's own process"
		announc = "Herald has its own rhythm: seven announcements in three seconds, then every arp.refresh"
		link    = "Herald uses the link as it is, with the node's own MAC"
		tracks  = "a VIP hangs on its own link and its checks: make it a check, http or tcp, of what it stands for"
	)
	return []keepalivedRow{
		{in: atTop, keywords: []string{"vrrp_instance"}, becomes: "`vips[].announce: arp`", text: "one for each link (`dev`) of its addresses; the name has to be the same on all nodes"},
		{in: atTop, keywords: []string{"vrrp_script"}, becomes: "`checks[]`", text: "if a VIP tracks it, and it is curl, nc, `/dev/tcp` or a check of the apiserver by its name"},
		{in: atTop, keywords: []string{"vrrp_sync_group"}, text: "each VIP has a lease of its own, so that those of a group may be on different nodes: give what has to stay together one VIP with several addresses", todo: true},
		{in: atTop, keywords: []string{"global_defs"}, becomes: "`arp.refresh`", text: "of `vrrp_garp_master_refresh`"},
		{in: atTop, keywords: []string{"include*"}, text: "the file was not followed: put its contents here and migrate again", todo: true},
		{in: atTop, keywords: []string{"virtual_server"}, becomes: "`balancers[]`", text: "of an address and a port, with `protocol TCP`, as it is unless said"},
		{in: atTop, keywords: []string{"virtual_server_group"}, text: "a group of virtual servers has no counterpart: write a balancer with several listen addresses", todo: true},
		{in: atTop, keywords: []string{"lvs_*"}, text: lvs},
		{in: atTop, keywords: []string{"static_*", "interface_up_down_delays"}, text: network, todo: true},
		{in: atTop, keywords: []string{"track_group", "vrrp_track_process", "vrrp_track_file", "track_file"}, text: tracks},
		{in: atTop, keywords: []string{"bfd_instance"}, text: "BFD watches BGP peers, see bgp.peers[].bfd; on a flat layer 2 the members watch each other"},
		{in: atTop, keywords: []string{"garp_group"}, text: announc},
		{in: atTop, keywords: []string{"net_namespace*", "namespace_with_ipsets", "instance", "use_pid_dir", "linkbeat_*", "child_wait_time", "config_save_dir", "vrrp_*", "process_*", "checker_*", "bfd_*", "random_seed"}, text: process},

		{in: inInstance, keywords: []string{"virtual_ipaddress", "virtual_ipaddress_excluded"}, becomes: "`vips[].addresses`", text: "as /32 and /128, without label, brd and scope"},
		{in: inInstance, keywords: []string{"interface"}, becomes: "`vips[].interface`", text: "`dev` of an address counts more"},
		{in: inInstance, keywords: []string{"priority"}, becomes: "`vips[].priority`", text: "100 unless set, in both"},
		{in: inInstance, keywords: []string{"nopreempt", "preempt"}, becomes: "`vips[].preempt`", text: "true without `nopreempt`, as VRRP has it"},
		{in: inInstance, keywords: []string{"unicast_peer", "unicast_src_ip"}, becomes: "`election.members`, `nodeName`", text: "with names made of the addresses, unless `--member` gives others"},
		{in: inInstance, keywords: []string{"track_script"}, becomes: "`vips[].checks`", text: "a failing check takes the VIP away, whatever its weight"},
		{in: inInstance, keywords: []string{"garp_master_refresh"}, becomes: "`arp.refresh`", text: "1s to 1h"},
		{in: inInstance, keywords: []string{"state"}, text: "nobody begins as master: a majority gives the lease to the healthy node with the highest priority"},
		{in: inInstance, keywords: []string{"virtual_router_id"}, text: "what the nodes agree on is the name of the VIP: let it be the same on all of them"},
		{in: inInstance, keywords: []string{"advert_int", "down_timer_adverts"}, text: "Herald renews leases: a holder that falls silent is replaced when election.lease, 600ms unless set, has run out"},
		{in: inInstance, keywords: []string{"authentication", "auth_hmac"}, text: "the members' messages are encrypted with the key in election.keyFile"},
		{in: inInstance, keywords: []string{"preempt_delay"}, text: "Herald moves a VIP to a node that has been healthy for a while, and without loss"},
		{in: inInstance, keywords: []string{"track_interface"}, text: tracks + "; its own link is watched anyway"},
		{in: inInstance, keywords: []string{"track_process", "track_file", "track_bfd", "track_src_ip"}, text: tracks},
		{in: inInstance, keywords: []string{"notify*"}, text: scripts, todo: true},
		{in: inInstance, keywords: []string{"smtp_alert"}, text: mail},
		{in: inInstance, keywords: []string{"virtual_routes", "virtual_rules"}, text: "Herald moves addresses and neither routes nor rules: have them on all nodes", todo: true},
		{in: inInstance, keywords: []string{"garp_*", "vmac_garp_*", "gna_*"}, text: announc},
		{in: inInstance, keywords: []string{"use_vmac*", "vmac_*", "use_ipvlan", "vrf", "promote_secondaries", "dont_track_primary", "linkbeat_use_polling"}, text: link},
		{in: inInstance, keywords: []string{"no_accept", "accept"}, text: "Herald's VIPs are for what runs on the node, which takes packets to them"},
		{in: inInstance, keywords: []string{"lvs_sync_daemon*"}, text: lvs},
		{in: inInstance, keywords: []string{"version", "native_ipv6", "mcast_*", "unicast_*", "check_unicast_src", "old_unicast_checksum", "v3_checksum_as_v2", "strict_mode", "skip_check_adv_addr", "lower_prio_no_advert", "higher_prio_send_advert", "owner_ignore_adverts", "timer_expired_backup", "thread_timer_expired", "no_virtual_ipaddress", "kernel_rx_buf_size", "debug"}, text: votes},

		{in: inScript, keywords: []string{"script"}, becomes: "`checks[].http`, `checks[].tcp`"},
		{in: inScript, keywords: []string{"interval", "timeout", "rise", "fall"}, text: "Herald checks every 200ms and waits 300ms, and two failures decide, or one refused connection: to keep the pace, set interval, timeout, rise and fall in checks"},
		{in: inScript, keywords: []string{"weight"}, text: "a failing check takes the VIP away: it does not lower a priority"},
		{in: inScript, keywords: []string{"user", "init_fail"}, text: "Herald runs no scripts, and begins unhealthy"},

		{in: inServer, keywords: []string{"real_server"}, becomes: "`balancers[].backends.static.addresses`"},
		{in: inServer, keywords: []string{"lb_algo", "lvs_sched"}, becomes: "`balancers[].method`", text: "`source-hash` of `sh`; the others become `round-robin`, without weights"},
		{in: inServer, keywords: []string{"persistence_timeout"}, becomes: "`balancers[].method: source-hash`", text: "a client stays with its server while that serves, and not for a time"},
		{in: inServer, keywords: []string{"protocol"}, becomes: "`balancers[]`", text: "others than TCP are left to keepalived"},
		{in: inServer, keywords: []string{"lb_kind", "lvs_method"}, text: "Herald sends connections on in this node's own name: servers need neither the VIP on a link nor a way back by this node, and do not see the client's address"},
		{in: inServer, keywords: []string{"persistence_*", "hashed", "flag-*", "sh-*", "mh-*"}, text: "source-hash goes by the client's whole address, and by nothing else"},
		{in: inServer, keywords: []string{"delay_loop", "delay_before_retry", "retry", "warmup", "connect_timeout"}, text: pace},
		{in: inServer, keywords: []string{"sorry_server*"}, text: "with no server that serves, connections are refused: there is no server of last resort", todo: true},
		{in: inServer, keywords: []string{"quorum_up", "quorum_down"}, text: scripts, todo: true},
		{in: inServer, keywords: []string{"quorum", "hysteresis", "alpha", "omega", "inhibit_on_failure", "ha_suspend"}, text: "a balancer takes connections while any server serves"},
		{in: inServer, keywords: []string{"virtualhost"}, text: "a check of a balancer asks for the server's address: if the server needs the name, write a check of one that does not"},
		{in: inServer, keywords: []string{"weight"}, text: even},
		{in: inServer, keywords: []string{"smtp_alert"}, text: mail},
		{in: inServer, keywords: []string{"ip_family", "ops", "service_type", "snmp_name", "nat_mask"}, text: lvs},

		{in: inReal, keywords: []string{"TCP_CHECK", "HTTP_GET", "SSL_GET"}, becomes: "`balancers[].check`", text: "one for all servers"},
		{in: inReal, keywords: []string{"MISC_CHECK", "SMTP_CHECK", "DNS_CHECK", "BFD_CHECK", "UDP_CHECK", "PING_CHECK", "FILE_CHECK"}, text: "Herald asks whether the server accepts connections: where that is too little, write balancers[].check, http or tcp, of what it asked", todo: true},
		{in: inReal, keywords: []string{"weight", "uthreshold", "lthreshold"}, text: even},
		{in: inReal, keywords: []string{"notify*"}, text: scripts, todo: true},
		{in: inReal, keywords: []string{"smtp_alert"}, text: mail},
		{in: inReal, keywords: []string{"delay_loop", "delay_before_retry", "retry", "warmup", "connect_timeout"}, text: pace},
		{in: inReal, keywords: []string{"inhibit_on_failure", "alpha"}, text: "a server that fails is out of rotation, and its connections are ended"},
		{in: inReal, keywords: []string{"lb_kind", "lvs_method", "virtualhost", "snmp_name"}, text: "is the same for all servers in Herald"},

		{in: inCheck, keywords: []string{"connect_port"}, becomes: "`balancers[].check.tcp.address`, `balancers[].check.http.url`"},
		{in: inCheck, keywords: []string{"url"}, becomes: "`balancers[].check.http.url`", text: "the first one"},
		{in: inCheck, keywords: []string{"connect_timeout", "nb_get_retry", "retry", "delay_before_retry", "delay_loop", "warmup", "fast_recovery"}, text: pace},
		{in: inCheck, keywords: []string{"connect_ip"}, text: "Herald asks the server itself, at its own address: write a check in checks[] of anything else", todo: true},
		{in: inCheck, keywords: []string{"virtualhost", "enable_sni", "http_protocol", "tls_compliant", "bindto", "bind_if", "bind_port", "fwmark", "alpha", "log_all_failures"}, text: "Herald's check is a GET by HTTP/1.1 for the server's address, from an address that the kernel chooses"},

		{in: inURL, keywords: []string{"path"}, becomes: "`balancers[].check.http.url`"},
		{in: inURL, keywords: []string{"status_code"}, becomes: "`balancers[].check.http.status`", text: "200 unless set, where keepalived takes any from 200 to 299"},
		{in: inURL, keywords: []string{"digest", "regex*", "virtualhost", "tls_compliant"}, text: "Herald goes by the status and does not read the answer: see that the server says by its status how it is", todo: true},

		{in: inGroup, keywords: []string{"group"}, becomes: "`vips[].checks`", text: "whose VIPs the group's `track_script` is for"},
		{in: inGroup, keywords: []string{"track_script"}, becomes: "`vips[].checks`", text: "of all VIPs of the group"},
		{in: inGroup, keywords: []string{"notify*"}, text: scripts, todo: true},
		{in: inGroup, keywords: []string{"smtp_alert"}, text: mail},
		{in: inGroup, keywords: []string{"track_*"}, text: tracks},
		{in: inGroup, keywords: []string{"global_tracking", "sync_group_tracking_weight", "init_fail"}, text: votes},

		{in: inGlobals, keywords: []string{"vrrp_garp_master_refresh"}, becomes: "`arp.refresh`", text: "1s to 1h"},
		{in: inGlobals, keywords: []string{"router_id"}, text: "logs and metrics name a node by nodeName, the host's name unless set"},
		{in: inGlobals, keywords: []string{"notification_email*", "smtp_*", "no_email_faults", "no_checker_emails"}, text: mail},
		{in: inGlobals, keywords: []string{"script_user", "enable_script_security", "startup_script*", "shutdown_script*", "max_auto_priority", "set_supplementary_groups", "use_symlink_paths"}, text: "Herald runs no scripts"},
		{in: inGlobals, keywords: []string{"vrrp_garp_*", "vrrp_gna_*", "vrrp_min_garp", "vrrp_vmac_garp_*"}, text: announc},
		{in: inGlobals, keywords: []string{"*notify_fifo*", "vrrp_notify_*", "lvs_notify_*"}, text: scripts, todo: true},
		{in: inGlobals, keywords: []string{"lvs_*", "nftables_ipvs*"}, text: lvs},
		{in: inGlobals, keywords: []string{"vrrp_iptables", "vrrp_ipsets", "nftables*"}, text: "Herald keeps its own tables in nftables: see arp.fence"},
		{in: inGlobals, keywords: []string{"enable_snmp*", "enable_traps", "snmp_*", "enable_dbus", "dbus_*"}, text: "Herald has Prometheus metrics, at metrics.listen"},
		{in: inGlobals, keywords: []string{"vmac_*"}, text: link},
		{in: inGlobals, keywords: []string{"default_interface"}, text: "the link of a VIP is vips[].interface, or else the one whose subnet holds the address"},
		{in: inGlobals, keywords: []string{"static_*"}, text: network},
		{in: inGlobals, keywords: []string{"vrrp_version", "vrrp_strict", "vrrp_mcast_*", "vrrp_check_unicast_src", "vrrp_skip_check_adv_addr", "vrrp_lower_prio_no_advert", "vrrp_higher_prio_send_advert", "vrrp_down_timer_adverts", "vrrp_owner_ignore_adverts", "vrrp_startup_delay", "vrrp_delay_after_boot", "disable_local_igmp", "log_unknown_vrids", "v3_checksum_as_v2"}, text: votes},
		{in: inGlobals, keywords: []string{"*process*", "*_no_swap", "*_priority", "*_rlimit_*", "*_cpu_affinity", "*_rcv_bufs*", "vrrp_rx_bufs_*", "reload_*", "*dump_file", "*_directory", "config_save_dir", "json_version", "data_use_instance", "iproute_*", "umask", "full_command", "param_match", "include_check", "dynamic_interfaces", "linkbeat_use_polling", "random_seed", "checker_log_all_failures", "rs_init_notifies", "min_auto_priority_delay", "fifo_write_vrrp_states_on_reload", "timer_expired_backup", "thread_timer_expired", "debug", "use_pid_dir", "instance", "net_namespace*", "namespace_with_ipsets", "child_wait_time"}, text: process},
	}
}

// row is the first row that is about a keyword.
func (k *keepalived) row(in, keyword string) (keepalivedRow, bool) {
	for _, row := range k.table {
		if row.in == in && slices.ContainsFunc(row.keywords, func(pattern string) bool { return fits(pattern, keyword) }) {
			return row, true
		}
	}
	return keepalivedRow{}, false
}

// fits reports whether keyword is pattern, in which a star at either end stands for anything.
func fits(pattern, keyword string) bool {
	inner := strings.Trim(pattern, "*")
	switch {
	case inner == pattern:
		return keyword == pattern
	case strings.HasPrefix(pattern, "*"):
		return strings.Contains(keyword, inner)
	}
	return strings.HasPrefix(keyword, inner)
}
