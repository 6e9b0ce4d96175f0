package migrate

// kubeVIPRow is what becomes of a setting of kube-vip.
type kubeVIPRow struct {
	env     []string // the variable's names; the first is what flags are read as
	flag    string   // of `kube-vip manager`, without dashes
	boolean bool
	needs   string   // without this one the setting does nothing, and nor does it here
	idle    []string // values that ask for nothing Herald lacks
	becomes string   // Herald's fields; empty if it is not carried over
	todo    bool     // not to have it takes something away that has to be had otherwise
	text    string   // what differs, or why there is no counterpart and what to do instead
}

// kubeVIPTable is all of kube-vip's settings, in the order of docs/migrating.md.
func kubeVIPTable() []kubeVIPRow {
	const (
		services = "only the control plane is converted: set Services up with Herald, from AddressPools, or keep kube-vip for them, with cp_enable false"
		ofSvc    = "belongs to Services, which are not converted"
		lease    = "Herald's leases are its own, between the nodes and not in the Kubernetes API: see election.lease"
		table    = "Herald writes no routing tables: announce by BGP from each node, to the router that read the table"
		zebra    = "Herald speaks BGP by itself and sets no routes: leave it out"
		noDNS    = "Herald announces addresses, not names: it asks neither DNS nor DHCP"
	)
	return []kubeVIPRow{
		{env: []string{"cp_enable"}, flag: "controlplane", boolean: true, becomes: "`vips`", text: "without it there is nothing to convert"},
		{env: []string{"address"}, flag: "address", becomes: "`vips[].addresses`", text: "a DNS name is to be filled in as addresses"},
		{env: []string{"vip_address"}, flag: "vip", becomes: "`vips[].addresses`", text: "where `address` is not set"},
		{env: []string{"vip_arp"}, flag: "arp", boolean: true, becomes: "`vips[].announce: arp`, `election`", text: "who votes is not in the file: give `--member`, or fill it in"},
		{env: []string{"bgp_enable"}, flag: "bgp", boolean: true, becomes: "`vips[].announce: bgp`, `bgp`", text: "every healthy node announces"},
		{env: []string{"vip_interface"}, flag: "interface", becomes: "`vips[].interface`"},
		{env: []string{"port"}, flag: "port", becomes: "`checks[].http.url`", text: "the port at which the check asks the local apiserver"},
		{env: []string{"kubernetes_addr"}, becomes: "`checks[].http.url`", text: "where the check asks, instead of `port`"},
		{env: []string{"control_plane_health_check_address"}, flag: "controlPlaneHealthCheckAddress", becomes: "`checks[].http.url`"},
		{env: []string{"control_plane_health_check_ca_path"}, flag: "controlPlaneHealthCheckCAPath", becomes: "`checks[].http.caFile`"},
		{env: []string{"control_plane_health_check_period_seconds"}, flag: "controlPlaneHealthCheckPeriodSeconds", needs: "control_plane_health_check_address", text: "Herald's checks have a pace of their own, every 200ms: to keep this one, set interval in checks"},
		{env: []string{"control_plane_health_check_timeout_seconds"}, flag: "controlPlaneHealthCheckTimeoutSeconds", needs: "control_plane_health_check_address", text: "Herald's checks wait 300ms: to keep this, set timeout in checks"},
		{env: []string{"control_plane_health_check_failure_threshold"}, flag: "controlPlaneHealthCheckFailureThreshold", needs: "control_plane_health_check_address", text: "in Herald two failures decide, or one refused connection: to keep this, set fall in checks"},
		{env: []string{"vip_nodename"}, flag: "nodeName", becomes: "`nodeName`", text: "the host's name, unless the file has another"},
		{env: []string{"prometheus_server"}, flag: "prometheusHTTPServer", becomes: "`metrics.listen`", text: "with port 9474, since kube-vip keeps its own while both run; the metrics have other names"},
		{env: []string{"vip_arpRate"}, becomes: "`arp.refresh`", needs: "vip_arp", text: "1s at least; without it Herald announces every 60s, and seven times when it takes the VIP"},

		{env: []string{"bgp_as"}, flag: "localAS", becomes: "`bgp.asn`", text: "65000 unless set, as with kube-vip"},
		{env: []string{"bgp_routerid"}, flag: "bgpRouterID", becomes: "`bgp.routerID`", text: "the node's own: another on each"},
		{env: []string{"bgp_routerinterface"}, needs: "bgp_enable", text: "Herald takes the node's first global IPv4 address: to choose another, set bgp.routerID"},
		{env: []string{"bgp_peers"}, flag: "bgppeers", becomes: "`bgp.peers`", text: "IPv6, unnumbered, port, MP-BGP and BFD parts included"},
		{env: []string{"bgp_peeraddress"}, flag: "peerAddress", becomes: "`bgp.peers[].address`"},
		{env: []string{"bgp_peeras"}, flag: "peerAS", becomes: "`bgp.peers[].asn`", text: "65000 unless set, as with kube-vip"},
		{env: []string{"bgp_peerpass"}, flag: "peerPass", becomes: "`bgp.peers[].passwordFile`", text: "to be written to a file by hand: a password is never printed"},
		{env: []string{"bgp_multihop"}, flag: "multihop", boolean: true, becomes: "`bgp.peers[].multihop: 50`", text: "kube-vip's TTL; iBGP needs none"},
		{env: []string{"bgp_sourceip"}, flag: "sourceIP", becomes: "`bgp.peers[].localAddress`", text: "for peers of the same family"},
		{env: []string{"bgp_sourceif"}, flag: "sourceIF", needs: "bgp_enable", text: "Herald's sessions begin at an address: where the kernel's choice will not do, set localAddress of the peers to one of this link"},
		{env: []string{"bgp_hold_time"}, flag: "bgpHoldTimer", becomes: "`bgp.peers[].holdTime`", text: "3s unless set"},
		{env: []string{"bgp_keepalive_interval"}, flag: "bgpKeepAliveInterval", needs: "bgp_enable", text: "Herald's keepalives are sent at a third of holdTime"},
		{env: []string{"mpbgp_nexthop"}, becomes: "`bgp.peers[].families`", text: "both; with auto_sourceif and auto_sourceip the next hop is found by Herald, too"},
		{env: []string{"mpbgp_ipv4"}, becomes: "`bgp.peers[].nextHop4`", text: "with `mpbgp_nexthop` fixed"},
		{env: []string{"mpbgp_ipv6"}, becomes: "`bgp.peers[].nextHop6`", text: "with `mpbgp_nexthop` fixed"},
		{env: []string{"annotation", "annotations"}, flag: "annotations", needs: "bgp_enable", text: "Herald reads no annotations of nodes: what they say of BGP belongs into bgp", todo: true},
		{env: []string{"bgp_attach_ip_to_interface"}, flag: "bgpAttachIPToInterface", boolean: true, needs: "svc_enable", text: ofSvc},
		{env: []string{"zebra_enable"}, flag: "zebra", boolean: true, needs: "bgp_enable", text: zebra},
		{env: []string{"zebra_url"}, flag: "zebraUrl", needs: "zebra_enable", text: zebra},
		{env: []string{"zebra_version"}, flag: "zebraVersion", needs: "zebra_enable", text: zebra},
		{env: []string{"zebra_software_name"}, flag: "zebraSoftwareName", needs: "zebra_enable", text: zebra},

		{env: []string{"vip_leaderelection"}, flag: "leaderElection", boolean: true, becomes: "`election`", text: "with `announce: bgp` nobody is elected: every healthy node announces"},
		{env: []string{"vip_leaseduration"}, flag: "leaseDuration", needs: "vip_leaderelection", text: lease + ", 600ms unless set"},
		{env: []string{"vip_renewdeadline"}, flag: "leaseRenewDuration", needs: "vip_leaderelection", text: lease},
		{env: []string{"vip_retryperiod"}, flag: "leaseRetry", needs: "vip_leaderelection", text: lease},
		{env: []string{"vip_leasename"}, flag: "leaseName", needs: "vip_leaderelection", text: "a lease of Herald's is named by its VIP"},
		{env: []string{"vip_leaseannotations"}, needs: "vip_leaderelection", text: lease},
		{env: []string{"leader_election_type"}, flag: "leaderElectionType", text: lease},
		{env: []string{"etcd_endpoints"}, flag: "etcdEndpoints", text: lease},
		{env: []string{"etcd_ca"}, flag: "etcdCACert", text: lease},
		{env: []string{"etcd_cert"}, flag: "etcdCert", text: lease},
		{env: []string{"etcd_key"}, flag: "etcdKey", text: lease},
		{env: []string{"cp_namespace"}, flag: "namespace", idle: []string{"kube-system", "kube-vip"}, text: lease},
		{env: []string{"vip_singlenode"}, boolean: true, text: "one node alone is an election of one member"},
		{env: []string{"vip_startleader"}, boolean: true, text: "nobody starts as the holder: a majority says who is"},
		{env: []string{"vip_loseleadership"}, flag: "loseLeadership", boolean: true, text: "Herald gives a VIP up as soon as its link is down, without being asked to"},
		{env: []string{"vip_loseleadership_timeout_seconds"}, flag: "loseLeadershiptTimeoutSeconds", needs: "vip_loseleadership", text: "there is no wait: the others have the VIP when the lease has run out"},
		{env: []string{"vip_preserve_on_leadership_loss"}, flag: "preserveVipOnLeadershipLoss", boolean: true, text: "Herald takes the address off a node that does not hold the VIP: an address that stays is answered for"},

		{env: []string{"vip_subnet", "vip_cidr"}, flag: "vipSubnet", idle: []string{"32", "/32", "128", "/128", "32,128", "/32,/128", "auto", "auto,auto"}, text: "Herald binds and announces single addresses, /32 and /128: with announce: arp the link needs an address of that subnet"},
		{env: []string{"vip_interfaceloglobal"}, flag: "loInterfaceGlobalScope", boolean: true, text: "Herald chooses the scope of the address"},
		{env: []string{"vip_allow_interface_not_up"}, flag: "allowInterfaceNotUp", boolean: true, text: "Herald waits for its links, whether they are there at start or not"},
		{env: []string{"vip_skipdad"}, boolean: true, text: "Herald asks the link before it uses an address only with onConflict: yield"},
		{env: []string{"cp_detect"}, flag: "autodetectcp", boolean: true, text: "Herald detects no address: it announces those of vips[].addresses"},
		{env: []string{"vip_ddns"}, flag: "ddns", boolean: true, text: noDNS},
		{env: []string{"dns_mode"}, flag: "dnsMode", idle: []string{"first"}, text: noDNS},
		{env: []string{"dhcp_mode"}, flag: "dhcpMode", needs: "vip_ddns", text: noDNS},
		{env: []string{"dhcp_backoff_attempts"}, flag: "dhcpBackoffAttempts", needs: "vip_ddns", text: noDNS},
		{env: []string{"vip_routingtable"}, flag: "table", boolean: true, text: table, todo: true},
		{env: []string{"vip_routingtableid"}, flag: "tableID", needs: "vip_routingtable", text: table},
		{env: []string{"vip_routingtabletype"}, flag: "tableType", needs: "vip_routingtable", text: table},
		{env: []string{"vip_routingprotocol"}, flag: "routingProtocol", needs: "vip_routingtable", text: table},
		{env: []string{"vip_cleanroutingtable"}, flag: "cleanRoutingTable", boolean: true, needs: "vip_routingtable", text: table},
		{env: []string{"vip_wireguard"}, flag: "wireguard", boolean: true, text: "Herald brings no WireGuard: it announces on the links that there are", todo: true},

		{env: []string{"lb_enable"}, flag: "enableLoadBalancer", boolean: true, becomes: "`balancers[]`", text: "at the VIP, over the members whose apiserver is healthy; with `announce: bgp` the routers spread connections"},
		{env: []string{"lb_port"}, flag: "lbPort", needs: "lb_enable", becomes: "`balancers[].listen[].port`", text: "6443 unless set, as with kube-vip"},
		{env: []string{"lb_fwdmethod"}, flag: "lbForwardingMethod", needs: "lb_enable", idle: []string{"masquerade"}, text: "Herald sends connections on in the holder's own name, as masquerade does: API servers do not see the client's address"},
		{env: []string{"backend_health_check_interval"}, needs: "lb_enable", text: "each master checks its own apiserver, and tells the others: see checks[].interval"},
		{env: []string{"iptables_backend"}, needs: "lb_enable", text: "Herald balances by nftables, in a table of its own"},

		{env: []string{"svc_enable"}, flag: "services", boolean: true, text: services, todo: true},
		{env: []string{"svc_election"}, flag: "servicesElection", boolean: true, needs: "svc_enable", text: ofSvc},
		{env: []string{"svc_namespace"}, flag: "serviceNamespace", needs: "svc_enable", text: ofSvc},
		{env: []string{"svc_leasename"}, flag: "servicesLeaseName", needs: "svc_enable", text: ofSvc},
		{env: []string{"vip_servicesinterface"}, flag: "serviceInterface", needs: "svc_enable", text: ofSvc},
		{env: []string{"lb_class_only"}, flag: "lbClassOnly", boolean: true, needs: "svc_enable", text: ofSvc},
		{env: []string{"lb_class_name"}, flag: "lbClassName", needs: "svc_enable", text: ofSvc},
		{env: []string{"lb_class_legacy_handling"}, flag: "lbClassNameLegacyHandling", boolean: true, needs: "svc_enable", text: ofSvc},
		{env: []string{"enable_service_security"}, flag: "onlyAllowTrafficServicePorts", boolean: true, needs: "svc_enable", text: ofSvc},
		{env: []string{"per_service_election_on_demand"}, flag: "perServiceElectionOnDemand", boolean: true, needs: "svc_enable", text: ofSvc},
		{env: []string{"disable_service_updates"}, flag: "disableServiceUpdates", boolean: true, needs: "svc_enable", text: ofSvc},
		{env: []string{"enable_endpoints"}, flag: "enableEndpoints", boolean: true, needs: "svc_enable", text: ofSvc},
		{env: []string{"enable_endpointslices"}, flag: "enableEndpointSlices", boolean: true, needs: "svc_enable", text: ofSvc},
		{env: []string{"vip_configmap"}, needs: "svc_enable", text: ofSvc},
		{env: []string{"mirror_dest_interface"}, flag: "mirrorDestInterface", needs: "svc_enable", text: ofSvc},
		{env: []string{"enable_upnp"}, boolean: true, needs: "svc_enable", text: ofSvc},
		{env: []string{"egress_podcidr"}, needs: "svc_enable", text: ofSvc},
		{env: []string{"egress_servicecidr"}, needs: "svc_enable", text: ofSvc},
		{env: []string{"egress_withnftables"}, flag: "egressWithNftables", boolean: true, needs: "svc_enable", text: ofSvc},
		{env: []string{"egress_enableinternalsnat"}, boolean: true, needs: "svc_enable", text: ofSvc},
		{env: []string{"egress_clean", "EGRESS_CLEAN"}, boolean: true, needs: "svc_enable", text: ofSvc},
		{env: []string{"instance_name", "INSTANCE_NAME"}, flag: "instanceName", needs: "svc_enable", text: ofSvc},
		{env: []string{"debounce_time"}, flag: "debounceTime", needs: "svc_enable", text: ofSvc},

		{env: []string{"enable_node_labeling"}, flag: "enableNodeLabeling", boolean: true, text: "Herald needs no Kubernetes API and labels no nodes: `herald status -o json` and the metrics say who holds a VIP"},
		{env: []string{"health_check_port"}, flag: "healthCheckPort", idle: []string{"0"}, text: "Herald has /healthz and /readyz where its metrics are, at metrics.listen"},
		{env: []string{"vip_loglevel"}, flag: "log", idle: []string{"0", "4"}, text: "herald run has --log-level"},
		{env: []string{"k8s_config_file"}, flag: "k8sConfigPath", idle: []string{"/etc/kubernetes/admin.conf"}, text: "Herald needs no Kubernetes API"},
		{env: []string{"config_file"}, flag: "config-file", text: "the settings in that file are not converted: give them as variables, one NAME=VALUE a line", todo: true},
		{env: []string{"metal"}, flag: "metal", boolean: true, text: "Herald calls no cloud's API"},
		{env: []string{"metal_key"}, flag: "metalKey", text: "Herald calls no cloud's API"},
		{env: []string{"metal_project"}, flag: "metalProject", text: "Herald calls no cloud's API"},
		{env: []string{"metal_project_id"}, flag: "metalProjectID", text: "Herald calls no cloud's API"},
		{env: []string{"provider_config"}, flag: "provider-config", text: "Herald calls no cloud's API"},
	}
}
