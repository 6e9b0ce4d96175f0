package healthchecker

import "github.com/herald-vip/herald/migrate"

// Sections of the files. DEFAULT may also have the settings of a service.
const (
	inDefault = "DEFAULT"
	inDaemon  = "daemon"
	inService = "service"
)

// Table returns all known settings, in the order of TABLES.md.
func Table() []migrate.Row {
	const (
		list    = "BIRD learns the VIPs from table 201 of the kernel, and no file is written for it"
		process = "concerns anycast-healthchecker's own process"
	)
	return []migrate.Row{
		{In: inService, Names: []string{"ip_prefix"}, Becomes: "`vips[].addresses`", Text: "with `announce: kernel`: a route in table 201"},
		{In: inService, Names: []string{"check_cmd"}, Becomes: "`checks[].exec`, `checks[].http`, `checks[].tcp`", Text: "http and tcp of curl and nc"},
		{In: inService, Names: []string{"check_interval", "check_timeout", "check_rise", "check_fail"}, Becomes: "`checks[].interval`, `checks[].timeout`, `checks[].rise`, `checks[].fall`", Text: "10s, 2s, 2 and 2 by default, for an exec check; others have Herald's own pace"},
		{In: inService, Names: []string{"check_disabled", "on_disabled"}, Becomes: "`vips`", Text: "a service with a disabled check, the default, is left out; with `advertise` fill in its check"},
		{In: inService, Names: []string{"interface"}, Text: "the address is on no link: a route makes the kernel answer for it, so leave it out of the network configuration"},
		{In: inService, Names: []string{"ip_check_disabled"}, Text: "Herald makes the node answer for the address"},
		{In: inService, Names: []string{"custom_bird_reconfigure_cmd"}, ToDo: true, Text: "no command runs when a VIP comes or goes: BIRD notices by itself, and `herald status -o json` and the metrics tell others"},
		{In: inService, Names: []string{"custom_bird_reconfigure_cmd_timeout"}, Text: list},
		{In: inDaemon, Names: []string{"bird_conf", "bird6_conf", "bird_variable", "bird6_variable", "bird_reconfigure_cmd", "bird6_reconfigure_cmd", "dummy_ip_prefix", "dummy_ip6_prefix", "bird_keep_changes", "bird6_keep_changes", "bird_changes_counter", "bird6_changes_counter", "purge_ip_prefixes"}, Text: list},
		{In: inDaemon, Names: []string{"ipv4", "ipv6"}, Text: "Herald announces VIPs of both families"},
		{In: inDaemon, Names: []string{"splay_startup"}, Text: "all checks begin at Herald's start"},
		{In: inDaemon, Names: []string{"prometheus_exporter", "prometheus_collector_textfile_dir", "prometheus_exporter_interval"}, Text: "Herald has Prometheus metrics, at metrics.listen"},
		{In: inDaemon, Names: []string{"pidfile", "loglevel", "log_maxbytes", "log_backups", "log_file", "log_server", "log_server_port", "log_format_journalctl", "stderr_file", "stderr_log_server", "json_stdout", "json_log_file", "json_log_server"}, Text: process},
	}
}
