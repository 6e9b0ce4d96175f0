// Package healthchecker converts the files of anycast-healthchecker, which has BIRD announce services.
package healthchecker

import (
	"strings"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/migrate"
)

// converter converts all files as one.
type converter struct {
	*migrate.Draft
	table    []migrate.Row
	sections []*migrate.Statement // with settings, in the order of the files
	byName   map[string]*migrate.Statement
}

// Convert converts anycast-healthchecker.conf and the files of its services, which it reads as one. The
// error names an unreadable file.
func Convert(files []migrate.File, o migrate.Options) (*migrate.Result, error) {
	h := converter{Draft: migrate.NewDraft(o.File), table: Table(), byName: map[string]*migrate.Statement{}}
	for _, f := range files {
		text, above, err := h.Text(f)
		if err != nil {
			return nil, err
		}
		h.read(text, above)
	}
	for _, s := range h.sections {
		if s.Keyword() == inDaemon {
			h.LeftOut(h.table, inDaemon, s.Block)
			continue
		}
		h.LeftOut(h.table, inService, s.Block)
		if s.Keyword() != inDefault {
			h.service(s)
		}
	}
	if len(h.VIPs) > 0 {
		h.ToDo(0, "", "have BIRD read table 201, as manifests/redistribute/bird.conf does, in place of the addresses on a link and the list of prefixes in bird_conf")
	} else {
		h.ToDo(0, "", "has no service with an advertised ip_prefix: set check_disabled to false, and pass the files of the services too")
	}
	return h.Result("anycast-healthchecker"), nil
}

// read adds the sections of a file as Python's configparser does: an indented line continues the value above.
func (h *converter) read(text string, above int) {
	var in *migrate.Statement
	var last *migrate.Statement // the last setting of in
	for line := range strings.Lines(text) {
		above++
		words := strings.TrimSpace(line)
		i := strings.IndexAny(words, "=:")
		switch {
		case words == "" || words[0] == '#' || words[0] == ';':
		case last != nil && strings.IndexByte(" \t", line[0]) >= 0:
			last.Words[1] += " " + words
		case words[0] == '[':
			name, _, closed := strings.Cut(words[1:], "]")
			if !closed {
				h.ToDo(above, "", "the name of the section has no closing bracket: check that the file is complete")
			}
			if in = h.byName[name]; in == nil {
				in = &migrate.Statement{Line: above, Words: []string{name}}
				h.byName[name] = in
				h.sections = append(h.sections, in)
			}
			last = nil
		case i <= 0 || in == nil:
			h.ToDo(above, "", "is not a setting in a section: not carried over")
		default:
			last = &migrate.Statement{Line: above, Words: []string{strings.ToLower(strings.TrimSpace(words[:i])), strings.TrimSpace(words[i+1:])}}
			in.Block = append(in.Block, last)
		}
	}
}

// get returns the setting of a service, or that of the section DEFAULT, or usual. Percent signs are doubled in
// the file.
func (h *converter) get(s *migrate.Statement, name, usual string) migrate.Setting {
	found := s.Setting(name, usual)
	if all := h.byName[inDefault]; found.Line == 0 && all != nil {
		found = all.Setting(name, usual)
	}
	found.Value = strings.ReplaceAll(found.Value, "%%", "%")
	if strings.Contains(found.Value, "%(") {
		h.ToDo(found.Line, name, "references to other settings are not resolved: write the value out and migrate again")
	}
	return found
}

// service converts the section of a service.
func (h *converter) service(s *migrate.Statement) {
	v := config.VIP{Name: migrate.DNSName(s.Keyword(), "vip"), Announce: config.AnnounceKernel}
	disabled := h.get(s, "check_disabled", "true")
	on, known := map[string]bool{"1": true, "yes": true, "true": true, "on": true, "0": false, "no": false, "false": false, "off": false}[strings.ToLower(disabled.Value)]
	advertised := h.get(s, "on_disabled", "withdraw").Value == "advertise"
	switch {
	case !known:
		h.ToDo(disabled.Line, disabled.Name, "%s is neither true nor false: the service is left out", migrate.Quoted(disabled.Value))
		return
	case on && !advertised:
		h.Note(s.Line, s.Keyword(), "its check is disabled, the default, and so it is withdrawn: left out")
		return
	}
	if prefix := h.get(s, "ip_prefix", ""); prefix.Value != "" {
		h.Place(&v, prefix.Line, prefix.Name, prefix.Value)
	}
	if command := h.get(s, "check_cmd", ""); !on && command.Value != "" {
		if check := h.AddCommand(s.Keyword(), command.Value, command.Line, command.Name); check != nil {
			h.SetPace(check, h.get(s, "check_interval", "10"), h.get(s, "check_timeout", "2"), h.get(s, "check_rise", "2"), h.get(s, "check_fail", "2"))
			v.Checks = []string{check.Name}
		}
	}
	h.AddVIP(v, s.Line)
}

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
