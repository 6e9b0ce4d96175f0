package keepalived

import "github.com/herald-vip/herald/migrate"

// Blocks of keepalived.conf.
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

// Table returns all known keywords, in the order of TABLES.md. The first matching row counts.
func Table() []migrate.Row {
	const (
		network = "Herald configures only VIPs: leave it to the system's network configuration"
		lvs     = "Herald balances by nftables, without LVS: see balancers[]"
		pace    = "Herald checks every 200ms, waits 300ms, and decides by two failures or one refused connection: to keep the pace, set interval, timeout, rise and fall in balancers[].check"
		even    = "Herald gives all working servers the same share of new connections"
		scripts = "Herald runs no scripts when a VIP moves: `herald status -o json` and the metrics name its holder"
		mail    = "Herald sends no mail: alert on its metrics"
		votes   = "belongs to VRRP, which Herald does not use: see election"
		process = "concerns keepalived's own process"
		announc = "Herald has its own pace: seven announcements in three seconds, then every arp.refresh"
		link    = "Herald uses the link unchanged, with the node's own MAC"
		tracks  = "a VIP depends on its own link and its checks: make it a check, such as http, exec or file"
	)
	return []migrate.Row{
		{In: atTop, Names: []string{"vrrp_instance"}, Becomes: "`vips[].announce: arp`", Text: "one for each link (`dev`) of its addresses; use the same name on all nodes"},
		{In: atTop, Names: []string{"vrrp_script"}, Becomes: "`checks[]`", Text: "if a VIP tracks it, and it is curl, nc, `/dev/tcp`, a check of the apiserver by its name, or a program with an absolute path"},
		{In: atTop, Names: []string{"vrrp_sync_group"}, Text: "each VIP has a lease of its own, so VIPs of a group may be on different nodes: to keep addresses together, put them into one VIP", ToDo: true},
		{In: atTop, Names: []string{"global_defs"}, Becomes: "`arp.refresh`", Text: "of `vrrp_garp_master_refresh`"},
		{In: atTop, Names: []string{"include*"}, Text: "the file was not followed: put its contents here and migrate again", ToDo: true},
		{In: atTop, Names: []string{"virtual_server"}, Becomes: "`balancers[]`", Text: "of an address and a port, with `protocol TCP`, the default"},
		{In: atTop, Names: []string{"virtual_server_group"}, Text: "a group of virtual servers has no counterpart: write a balancer with several listen addresses", ToDo: true},
		{In: atTop, Names: []string{"lvs_*"}, Text: lvs},
		{In: atTop, Names: []string{"static_*", "interface_up_down_delays"}, Text: network, ToDo: true},
		{In: atTop, Names: []string{"track_group", "vrrp_track_process", "vrrp_track_file", "track_file"}, Text: tracks},
		{In: atTop, Names: []string{"bfd_instance"}, Text: "BFD watches BGP peers, see bgp.peers[].bfd; on a flat layer 2 the members watch each other"},
		{In: atTop, Names: []string{"garp_group"}, Text: announc},
		{In: atTop, Names: []string{"net_namespace*", "namespace_with_ipsets", "instance", "use_pid_dir", "linkbeat_*", "child_wait_time", "config_save_dir", "vrrp_*", "process_*", "checker_*", "bfd_*", "random_seed"}, Text: process},

		{In: inInstance, Names: []string{"virtual_ipaddress", "virtual_ipaddress_excluded"}, Becomes: "`vips[].addresses`", Text: "as /32 and /128, without label, brd and scope"},
		{In: inInstance, Names: []string{"interface"}, Becomes: "`vips[].interface`", Text: "`dev` of an address takes precedence"},
		{In: inInstance, Names: []string{"priority"}, Becomes: "`vips[].priority`", Text: "100 by default, in both"},
		{In: inInstance, Names: []string{"nopreempt", "preempt"}, Becomes: "`vips[].preempt`", Text: "true without `nopreempt`, as in VRRP"},
		{In: inInstance, Names: []string{"unicast_peer", "unicast_src_ip"}, Becomes: "`election.members`, `nodeName`", Text: "with names made of the addresses, unless `--member` gives others"},
		{In: inInstance, Names: []string{"track_script"}, Becomes: "`vips[].checks`", Text: "a failing check withdraws the VIP, with any weight"},
		{In: inInstance, Names: []string{"garp_master_refresh"}, Becomes: "`arp.refresh`", Text: "1s to 1h"},
		{In: inInstance, Names: []string{"state"}, Text: "no node begins as master: a majority grants the lease to the healthy node with the highest priority"},
		{In: inInstance, Names: []string{"virtual_router_id"}, Text: "the nodes agree on the name of the VIP: use the same on all of them"},
		{In: inInstance, Names: []string{"advert_int", "down_timer_adverts"}, Text: "Herald renews leases: a silent holder is replaced when election.lease, 600ms by default, has expired"},
		{In: inInstance, Names: []string{"authentication", "auth_hmac"}, Text: "the members' messages are encrypted with the key in election.keyFile"},
		{In: inInstance, Names: []string{"preempt_delay"}, Text: "Herald moves a VIP without loss, to a node that has been healthy for a while"},
		{In: inInstance, Names: []string{"track_interface"}, Becomes: "`checks[].link`, `vips[].checks`", Text: "with `not: true` for `reverse`; a failing check withdraws the VIP, with any weight"},
		{In: inInstance, Names: []string{"track_process", "track_file", "track_bfd", "track_src_ip"}, Text: tracks},
		{In: inInstance, Names: []string{"notify*"}, Text: scripts, ToDo: true},
		{In: inInstance, Names: []string{"smtp_alert"}, Text: mail},
		{In: inInstance, Names: []string{"virtual_routes", "virtual_rules"}, Text: "Herald moves addresses, but neither routes nor rules: configure these on all nodes", ToDo: true},
		{In: inInstance, Names: []string{"garp_*", "vmac_garp_*", "gna_*"}, Text: announc},
		{In: inInstance, Names: []string{"use_vmac*", "vmac_*", "use_ipvlan", "vrf", "promote_secondaries", "dont_track_primary", "linkbeat_use_polling"}, Text: link},
		{In: inInstance, Names: []string{"no_accept", "accept"}, Text: "Herald's VIPs are for servers on the node, which accepts their packets"},
		{In: inInstance, Names: []string{"lvs_sync_daemon*"}, Text: lvs},
		{In: inInstance, Names: []string{"version", "native_ipv6", "mcast_*", "unicast_*", "check_unicast_src", "old_unicast_checksum", "v3_checksum_as_v2", "strict_mode", "skip_check_adv_addr", "lower_prio_no_advert", "higher_prio_send_advert", "owner_ignore_adverts", "timer_expired_backup", "thread_timer_expired", "no_virtual_ipaddress", "kernel_rx_buf_size", "debug"}, Text: votes},

		{In: inScript, Names: []string{"script"}, Becomes: "`checks[].http`, `checks[].tcp`, `checks[].exec`", Text: "without a shell: make a line with pipes or variables a script"},
		{In: inScript, Names: []string{"interval", "timeout", "rise", "fall"}, Becomes: "`checks[].interval`, `checks[].timeout`, `checks[].rise`, `checks[].fall`", Text: "for an exec check; others have Herald's own pace"},
		{In: inScript, Names: []string{"weight"}, Text: "a failing check withdraws the VIP: it does not lower a priority"},
		{In: inScript, Names: []string{"user"}, Becomes: "`checks[].exec.user`", Text: "root is refused"},
		{In: inScript, Names: []string{"init_fail"}, Text: "Herald begins unhealthy"},

		{In: inServer, Names: []string{"real_server"}, Becomes: "`balancers[].backends.static.addresses`"},
		{In: inServer, Names: []string{"lb_algo", "lvs_sched"}, Becomes: "`balancers[].method`", Text: "`sh` becomes `source-hash`, the others `round-robin`, without weights"},
		{In: inServer, Names: []string{"persistence_timeout"}, Becomes: "`balancers[].method: source-hash`", Text: "a client stays with its server while that works, without a time limit"},
		{In: inServer, Names: []string{"protocol"}, Becomes: "`balancers[]`", Text: "TCP only: leave others to keepalived"},
		{In: inServer, Names: []string{"lb_kind", "lvs_method"}, Text: "Herald masquerades connections as this node's: servers need neither the VIP on a link nor a route back by this node, and do not see the client's address"},
		{In: inServer, Names: []string{"persistence_*", "hashed", "flag-*", "sh-*", "mh-*"}, Text: "source-hash uses only the client's whole address"},
		{In: inServer, Names: []string{"delay_loop", "delay_before_retry", "retry", "warmup", "connect_timeout"}, Text: pace},
		{In: inServer, Names: []string{"sorry_server*"}, Text: "without a working server connections are refused: there is no server of last resort", ToDo: true},
		{In: inServer, Names: []string{"quorum_up", "quorum_down"}, Text: scripts, ToDo: true},
		{In: inServer, Names: []string{"quorum", "hysteresis", "alpha", "omega", "inhibit_on_failure", "ha_suspend"}, Text: "a balancer takes connections while any server works"},
		{In: inServer, Names: []string{"virtualhost"}, Text: "a balancer's check asks for the server's address: if the server needs a name, check another path without it"},
		{In: inServer, Names: []string{"weight"}, Text: even},
		{In: inServer, Names: []string{"smtp_alert"}, Text: mail},
		{In: inServer, Names: []string{"ip_family", "ops", "service_type", "snmp_name", "nat_mask"}, Text: lvs},

		{In: inReal, Names: []string{"TCP_CHECK", "HTTP_GET", "SSL_GET"}, Becomes: "`balancers[].check`", Text: "one for all servers"},
		{In: inReal, Names: []string{"MISC_CHECK", "SMTP_CHECK", "DNS_CHECK", "BFD_CHECK", "UDP_CHECK", "PING_CHECK", "FILE_CHECK"}, Text: "Herald checks whether the server accepts connections: if that is not enough, write balancers[].check, http or tcp", ToDo: true},
		{In: inReal, Names: []string{"weight", "uthreshold", "lthreshold"}, Text: even},
		{In: inReal, Names: []string{"notify*"}, Text: scripts, ToDo: true},
		{In: inReal, Names: []string{"smtp_alert"}, Text: mail},
		{In: inReal, Names: []string{"delay_loop", "delay_before_retry", "retry", "warmup", "connect_timeout"}, Text: pace},
		{In: inReal, Names: []string{"inhibit_on_failure", "alpha"}, Text: "a failing server is out of rotation, and its connections are ended"},
		{In: inReal, Names: []string{"lb_kind", "lvs_method", "virtualhost", "snmp_name"}, Text: "is the same for all servers in Herald"},

		{In: inCheck, Names: []string{"connect_port"}, Becomes: "`balancers[].check.tcp.address`, `balancers[].check.http.url`"},
		{In: inCheck, Names: []string{"url"}, Becomes: "`balancers[].check.http.url`", Text: "the first one"},
		{In: inCheck, Names: []string{"connect_timeout", "nb_get_retry", "retry", "delay_before_retry", "delay_loop", "warmup", "fast_recovery"}, Text: pace},
		{In: inCheck, Names: []string{"connect_ip"}, Text: "Herald checks the server at its own address: write other checks in checks[]", ToDo: true},
		{In: inCheck, Names: []string{"virtualhost", "enable_sni", "http_protocol", "tls_compliant", "bindto", "bind_if", "bind_port", "fwmark", "alpha", "log_all_failures"}, Text: "Herald's check is a GET by HTTP/1.1 for the server's address, from the kernel's choice of address"},

		{In: inURL, Names: []string{"path"}, Becomes: "`balancers[].check.http.url`"},
		{In: inURL, Names: []string{"status_code"}, Becomes: "`balancers[].check.http.status`", Text: "200 by default; keepalived accepts 200 to 299"},
		{In: inURL, Names: []string{"digest", "regex*", "virtualhost", "tls_compliant"}, Text: "Herald uses the status and ignores the body: make the server report its health by the status", ToDo: true},

		{In: inGroup, Names: []string{"group"}, Becomes: "`vips[].checks`", Text: "the group's `track_script` and `track_interface` are for their VIPs"},
		{In: inGroup, Names: []string{"track_script", "track_interface"}, Becomes: "`vips[].checks`", Text: "for all VIPs of the group"},
		{In: inGroup, Names: []string{"notify*"}, Text: scripts, ToDo: true},
		{In: inGroup, Names: []string{"smtp_alert"}, Text: mail},
		{In: inGroup, Names: []string{"track_*"}, Text: tracks},
		{In: inGroup, Names: []string{"global_tracking", "sync_group_tracking_weight", "init_fail"}, Text: votes},

		{In: inGlobals, Names: []string{"vrrp_garp_master_refresh"}, Becomes: "`arp.refresh`", Text: "1s to 1h"},
		{In: inGlobals, Names: []string{"router_id"}, Text: "logs and metrics name a node by nodeName, by default the host's name"},
		{In: inGlobals, Names: []string{"notification_email*", "smtp_*", "no_email_faults", "no_checker_emails"}, Text: mail},
		{In: inGlobals, Names: []string{"script_user", "enable_script_security", "startup_script*", "shutdown_script*", "max_auto_priority", "set_supplementary_groups", "use_symlink_paths"}, Text: "Herald runs only checks as scripts, as user 65534 unless exec.user says otherwise"},
		{In: inGlobals, Names: []string{"vrrp_garp_*", "vrrp_gna_*", "vrrp_min_garp", "vrrp_vmac_garp_*"}, Text: announc},
		{In: inGlobals, Names: []string{"*notify_fifo*", "vrrp_notify_*", "lvs_notify_*"}, Text: scripts, ToDo: true},
		{In: inGlobals, Names: []string{"lvs_*", "nftables_ipvs*"}, Text: lvs},
		{In: inGlobals, Names: []string{"vrrp_iptables", "vrrp_ipsets", "nftables*"}, Text: "Herald keeps its own tables in nftables: see arp.fence"},
		{In: inGlobals, Names: []string{"enable_snmp*", "enable_traps", "snmp_*", "enable_dbus", "dbus_*"}, Text: "Herald has Prometheus metrics, at metrics.listen"},
		{In: inGlobals, Names: []string{"vmac_*"}, Text: link},
		{In: inGlobals, Names: []string{"default_interface"}, Text: "the link of a VIP is vips[].interface, by default the link with the address's subnet"},
		{In: inGlobals, Names: []string{"static_*"}, Text: network},
		{In: inGlobals, Names: []string{"vrrp_version", "vrrp_strict", "vrrp_mcast_*", "vrrp_check_unicast_src", "vrrp_skip_check_adv_addr", "vrrp_lower_prio_no_advert", "vrrp_higher_prio_send_advert", "vrrp_down_timer_adverts", "vrrp_owner_ignore_adverts", "vrrp_startup_delay", "vrrp_delay_after_boot", "disable_local_igmp", "log_unknown_vrids", "v3_checksum_as_v2"}, Text: votes},
		{In: inGlobals, Names: []string{"*process*", "*_no_swap", "*_priority", "*_rlimit_*", "*_cpu_affinity", "*_rcv_bufs*", "vrrp_rx_bufs_*", "reload_*", "*dump_file", "*_directory", "config_save_dir", "json_version", "data_use_instance", "iproute_*", "umask", "full_command", "param_match", "include_check", "dynamic_interfaces", "linkbeat_use_polling", "random_seed", "checker_log_all_failures", "rs_init_notifies", "min_auto_priority_delay", "fifo_write_vrrp_states_on_reload", "timer_expired_backup", "thread_timer_expired", "debug", "use_pid_dir", "instance", "net_namespace*", "namespace_with_ipsets", "child_wait_time"}, Text: process},
	}
}
