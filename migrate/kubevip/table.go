package kubevip

import "github.com/herald-vip/herald/migrate"

// Table returns all settings of kube-vip, in the order of TABLES.md.
func Table() []migrate.Row {
	const (
		services = "only the control plane is converted: set Services up with Herald, from AddressPools, or keep kube-vip for them, with cp_enable false"
		ofSvc    = "belongs to Services, which are not converted"
		lease    = "Herald's leases are between the nodes, not in the Kubernetes API: see election.lease"
		zebra    = "Herald has its own BGP and sets no routes: leave it out"
		noDNS    = "Herald announces addresses, not names, and uses neither DNS nor DHCP"
	)
	return []migrate.Row{
		{Names: []string{"cp_enable", "--controlplane"}, Boolean: true, Becomes: "`vips`", Text: "without it there is nothing to convert"},
		{Names: []string{"address", "--address"}, Becomes: "`vips[].addresses`", Text: "replace a DNS name by its addresses"},
		{Names: []string{"vip_address", "--vip"}, Becomes: "`vips[].addresses`", Text: "if `address` is not set"},
		{Names: []string{"vip_arp", "--arp"}, Boolean: true, Becomes: "`vips[].announce: arp`, `election`", Text: "the file does not name the voters: give `--member`, or fill it in"},
		{Names: []string{"bgp_enable", "--bgp"}, Boolean: true, Becomes: "`vips[].announce: bgp`, `bgp`", Text: "every healthy node announces"},
		{Names: []string{"vip_interface", "--interface"}, Becomes: "`vips[].interface`"},
		{Names: []string{"port", "--port"}, Becomes: "`checks[].http.url`", Text: "the port of the local apiserver, for the check"},
		{Names: []string{"kubernetes_addr"}, Becomes: "`checks[].http.url`", Text: "the check's server, instead of `port`"},
		{Names: []string{"control_plane_health_check_address", "--controlPlaneHealthCheckAddress"}, Becomes: "`checks[].http.url`"},
		{Names: []string{"control_plane_health_check_ca_path", "--controlPlaneHealthCheckCAPath"}, Becomes: "`checks[].http.caFile`"},
		{Names: []string{"control_plane_health_check_period_seconds", "--controlPlaneHealthCheckPeriodSeconds"}, Needs: "control_plane_health_check_address", Text: "Herald checks every 200ms: to keep this pace, set interval in checks"},
		{Names: []string{"control_plane_health_check_timeout_seconds", "--controlPlaneHealthCheckTimeoutSeconds"}, Needs: "control_plane_health_check_address", Text: "Herald's checks wait 300ms: to keep this timeout, set timeout in checks"},
		{Names: []string{"control_plane_health_check_failure_threshold", "--controlPlaneHealthCheckFailureThreshold"}, Needs: "control_plane_health_check_address", Text: "in Herald two failures decide, or one refused connection: to keep this threshold, set fall in checks"},
		{Names: []string{"vip_nodename", "--nodeName"}, Becomes: "`nodeName`", Text: "the host's name, unless the file has another"},
		{Names: []string{"prometheus_server", "--prometheusHTTPServer"}, Becomes: "`metrics.listen`", Text: "with port 9474, since kube-vip keeps its own port while both run; the metrics have other names"},
		{Names: []string{"vip_arpRate"}, Becomes: "`arp.refresh`", Needs: "vip_arp", Text: "at least 1s; without it Herald announces every 60s, and seven times when it takes the VIP"},

		{Names: []string{"bgp_as", "--localAS"}, Becomes: "`bgp.asn`", Text: "65000 by default, as in kube-vip"},
		{Names: []string{"bgp_routerid", "--bgpRouterID"}, Becomes: "`bgp.routerID`", Text: "the node's own: different on each"},
		{Names: []string{"bgp_routerinterface"}, Needs: "bgp_enable", Text: "Herald takes the node's first global IPv4 address: to choose another, set bgp.routerID"},
		{Names: []string{"bgp_peers", "--bgppeers"}, Becomes: "`bgp.peers`", Text: "IPv6, unnumbered, port, MP-BGP and BFD parts included"},
		{Names: []string{"bgp_peeraddress", "--peerAddress"}, Becomes: "`bgp.peers[].address`"},
		{Names: []string{"bgp_peeras", "--peerAS"}, Becomes: "`bgp.peers[].asn`", Text: "65000 by default, as in kube-vip"},
		{Names: []string{"bgp_peerpass", "--peerPass"}, Becomes: "`bgp.peers[].passwordFile`", Text: "write it to a file by hand: a password is never printed"},
		{Names: []string{"bgp_multihop", "--multihop"}, Boolean: true, Becomes: "`bgp.peers[].multihop: 50`", Text: "kube-vip's TTL; iBGP needs none"},
		{Names: []string{"bgp_sourceip", "--sourceIP"}, Becomes: "`bgp.peers[].localAddress`", Text: "for peers of the same family"},
		{Names: []string{"bgp_sourceif", "--sourceIF"}, Needs: "bgp_enable", Text: "Herald's sessions begin at an address: if the kernel's choice is wrong, set localAddress of the peers to an address of this link"},
		{Names: []string{"bgp_hold_time", "--bgpHoldTimer"}, Becomes: "`bgp.peers[].holdTime`", Text: "3s by default"},
		{Names: []string{"bgp_keepalive_interval", "--bgpKeepAliveInterval"}, Needs: "bgp_enable", Text: "Herald sends keepalives at a third of holdTime"},
		{Names: []string{"mpbgp_nexthop"}, Becomes: "`bgp.peers[].families`", Text: "both; with auto_sourceif and auto_sourceip Herald also finds the next hop"},
		{Names: []string{"mpbgp_ipv4"}, Becomes: "`bgp.peers[].nextHop4`", Text: "with `mpbgp_nexthop` fixed"},
		{Names: []string{"mpbgp_ipv6"}, Becomes: "`bgp.peers[].nextHop6`", Text: "with `mpbgp_nexthop` fixed"},
		{Names: []string{"annotation", "annotations", "--annotations"}, Needs: "bgp_enable", Text: "Herald reads no annotations of nodes: write their BGP settings into bgp", ToDo: true},
		{Names: []string{"zebra_enable", "--zebra"}, Boolean: true, Needs: "bgp_enable", Text: zebra},
		{Names: []string{"zebra_url", "--zebraUrl", "zebra_version", "--zebraVersion", "zebra_software_name", "--zebraSoftwareName"}, Needs: "zebra_enable", Text: zebra},

		{Names: []string{"vip_leaderelection", "--leaderElection"}, Boolean: true, Becomes: "`election`", Text: "with `announce: bgp` there is no election: every healthy node announces"},
		{Names: []string{"vip_leaseduration", "--leaseDuration"}, Needs: "vip_leaderelection", Text: lease + ", 600ms by default"},
		{Names: []string{"vip_renewdeadline", "--leaseRenewDuration", "vip_retryperiod", "--leaseRetry", "vip_leaseannotations"}, Needs: "vip_leaderelection", Text: lease},
		{Names: []string{"vip_leasename", "--leaseName"}, Needs: "vip_leaderelection", Text: "Herald names a lease by its VIP"},
		{Names: []string{"leader_election_type", "--leaderElectionType", "etcd_endpoints", "--etcdEndpoints", "etcd_ca", "--etcdCACert", "etcd_cert", "--etcdCert", "etcd_key", "--etcdKey"}, Text: lease},
		{Names: []string{"cp_namespace", "--namespace", "-n"}, Idle: []string{"kube-system", "kube-vip"}, Text: lease},
		{Names: []string{"vip_singlenode"}, Boolean: true, Text: "a single node is an election of one member"},
		{Names: []string{"vip_startleader"}, Boolean: true, Text: "no node starts as the holder: a majority decides"},
		{Names: []string{"vip_loseleadership", "--loseLeadership"}, Boolean: true, Text: "Herald always gives a VIP up as soon as its link is down"},
		{Names: []string{"vip_loseleadership_timeout_seconds", "--loseLeadershiptTimeoutSeconds"}, Needs: "vip_loseleadership", Text: "there is no wait: another node has the VIP when the lease has expired"},
		{Names: []string{"vip_preserve_on_leadership_loss", "--preserveVipOnLeadershipLoss"}, Boolean: true, Text: "Herald removes the address from a node that does not hold the VIP: the kernel would answer for it"},

		{Names: []string{"vip_subnet", "vip_cidr", "--vipSubnet"}, Idle: []string{"32", "/32", "128", "/128", "32,128", "/32,/128", "auto", "auto,auto"}, Text: "Herald binds and announces single addresses, /32 and /128: with announce: arp the link needs an address of that subnet"},
		{Names: []string{"vip_interfaceloglobal", "--loInterfaceGlobalScope"}, Boolean: true, Text: "Herald chooses the scope of the address"},
		{Names: []string{"vip_allow_interface_not_up", "--allowInterfaceNotUp"}, Boolean: true, Text: "Herald waits for links that are missing at its start"},
		{Names: []string{"vip_skipdad"}, Boolean: true, Text: "Herald asks the link before it uses an address only with onConflict: yield"},
		{Names: []string{"cp_detect", "--autodetectcp"}, Boolean: true, Text: "Herald detects no address: it announces vips[].addresses"},
		{Names: []string{"vip_ddns", "--ddns"}, Boolean: true, Text: noDNS},
		{Names: []string{"dns_mode", "--dnsMode"}, Idle: []string{"first"}, Text: noDNS},
		{Names: []string{"dhcp_mode", "--dhcpMode", "dhcp_backoff_attempts", "--dhcpBackoffAttempts"}, Needs: "vip_ddns", Text: noDNS},
		{Names: []string{"vip_routingtable", "--table"}, Boolean: true, Becomes: "`vips[].announce: kernel`", Text: "the table's readers find the same routes there, by the link herald0"},
		{Names: []string{"vip_routingtableid", "--tableID"}, Needs: "vip_routingtable", Becomes: "`vips[].kernel.table`", Text: "198 by default, as in kube-vip"},
		{Names: []string{"vip_routingtabletype", "--tableType"}, Needs: "vip_routingtable", Idle: []string{"1"}, Text: "Herald's routes are of type unicast: routing daemons learn no others"},
		{Names: []string{"vip_routingprotocol", "--routingProtocol"}, Needs: "vip_routingtable", Text: "Herald's routes have the protocol 213: change filters on it, such as krt_source in BIRD"},
		{Names: []string{"vip_cleanroutingtable", "--cleanRoutingTable"}, Boolean: true, Needs: "vip_routingtable", Text: "Herald leaves no routes behind"},
		{Names: []string{"vip_wireguard", "--wireguard"}, Boolean: true, Text: "Herald has no WireGuard: it announces on existing links", ToDo: true},

		{Names: []string{"lb_enable", "--enableLoadBalancer"}, Boolean: true, Becomes: "`balancers[]`", Text: "at the VIP, over members with a healthy apiserver; with `announce: bgp` the routers spread connections"},
		{Names: []string{"lb_port", "--lbPort"}, Needs: "lb_enable", Becomes: "`balancers[].listen[].port`", Text: "6443 by default, as in kube-vip"},
		{Names: []string{"lb_fwdmethod", "--lbForwardingMethod"}, Needs: "lb_enable", Idle: []string{"masquerade"}, Text: "Herald masquerades connections as the holder's: API servers do not see the client's address"},
		{Names: []string{"backend_health_check_interval"}, Needs: "lb_enable", Text: "each master checks its own apiserver, and tells the others: see checks[].interval"},
		{Names: []string{"iptables_backend"}, Needs: "lb_enable", Text: "Herald balances by nftables, in a table of its own"},

		{Names: []string{"svc_enable", "--services"}, Boolean: true, Text: services, ToDo: true},
		{Names: []string{"svc_election", "--servicesElection", "lb_class_only", "--lbClassOnly", "lb_class_legacy_handling", "--lbClassNameLegacyHandling", "enable_service_security", "--onlyAllowTrafficServicePorts", "per_service_election_on_demand", "--perServiceElectionOnDemand", "disable_service_updates", "--disableServiceUpdates", "enable_endpoints", "--enableEndpoints", "enable_endpointslices", "--enableEndpointSlices", "enable_upnp", "egress_withnftables", "--egressWithNftables", "egress_enableinternalsnat", "egress_clean", "EGRESS_CLEAN", "bgp_attach_ip_to_interface", "--bgpAttachIPToInterface"}, Boolean: true, Needs: "svc_enable", Text: ofSvc},
		{Names: []string{"svc_namespace", "--serviceNamespace", "svc_leasename", "--servicesLeaseName", "vip_servicesinterface", "--serviceInterface", "lb_class_name", "--lbClassName", "vip_configmap", "mirror_dest_interface", "--mirrorDestInterface", "egress_podcidr", "egress_servicecidr", "instance_name", "INSTANCE_NAME", "--instanceName", "debounce_time", "--debounceTime"}, Needs: "svc_enable", Text: ofSvc},

		{Names: []string{"enable_node_labeling", "--enableNodeLabeling"}, Boolean: true, Text: "Herald needs no Kubernetes API and labels no nodes: `herald status -o json` and the metrics name a VIP's holder"},
		{Names: []string{"health_check_port", "--healthCheckPort"}, Idle: []string{"0"}, Text: "Herald has /healthz and /readyz beside its metrics, at metrics.listen"},
		{Names: []string{"vip_loglevel", "--log"}, Idle: []string{"0", "4"}, Text: "herald run has --log-level"},
		{Names: []string{"k8s_config_file", "--k8sConfigPath"}, Idle: []string{"/etc/kubernetes/admin.conf"}, Text: "Herald needs no Kubernetes API"},
		{Names: []string{"config_file", "--config-file"}, Text: "the settings in that file are not converted: give them as variables, one NAME=VALUE a line", ToDo: true},
		{Names: []string{"metal", "--metal"}, Boolean: true, Text: "Herald calls no cloud's API"},
		{Names: []string{"metal_key", "--metalKey", "metal_project", "--metalProject", "metal_project_id", "--metalProjectID", "provider_config", "--provider-config"}, Text: "Herald calls no cloud's API"},
	}
}
