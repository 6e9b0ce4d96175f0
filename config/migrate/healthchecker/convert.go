// Package healthchecker converts the files of anycast-healthchecker, which has BIRD announce services.
package healthchecker

import (
	"strings"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/config/migrate"
)

// converter converts all files, as one.
type converter struct {
	*migrate.Draft
	sections
	table []migrate.Row
}

// Convert converts anycast-healthchecker.conf and the files of its services, which are read as one. The error says
// which file cannot be read, and why.
func Convert(files []migrate.File, o migrate.Options) (*migrate.Result, error) {
	h := converter{Draft: migrate.NewDraft(o.File), table: Table(), sections: sections{byName: map[string]*section{}}}
	for _, f := range files {
		text, above, err := h.Text(f)
		if err != nil {
			return nil, err
		}
		h.read(text, above, &h.Notes)
	}
	for _, s := range h.list {
		switch s.name {
		case inDaemon:
			h.leftOut(inDaemon, s)
		case inDefault:
			h.leftOut(inService, s)
		default:
			h.leftOut(inService, s)
			h.service(s)
		}
	}
	if len(h.VIPs) > 0 {
		h.ToDo(0, "", "have BIRD read table 201, as manifests/redistribute/bird.conf does, in place of the addresses on a link and the list of prefixes in bird_conf")
	} else {
		h.ToDo(0, "", "has no service whose ip_prefix is advertised: is check_disabled false, and are the files of the services there, too?")
	}
	return h.Result("anycast-healthchecker"), nil
}

// leftOut notes the settings that are not carried over.
func (h *converter) leftOut(in string, s *section) {
	for _, setting := range s.settings {
		row, known := migrate.Find(h.table, in, func(name string) bool { return name == setting.Name })
		if !known {
			h.ToDo(setting.Line, setting.Name, "is no setting that is known here: not carried over")
		} else if row.Becomes == "" {
			h.Add(setting.Line, row.ToDo, setting.Name, "%s", row.Text)
		}
	}
}

// get is what is set for a service, for all of them, or usual. A percent sign is there twice.
func (h *converter) get(s *section, name, usual string) migrate.Setting {
	found, ok := s.get(name)
	if all := h.byName[inDefault]; !ok && all != nil {
		found, ok = all.get(name)
	}
	if !ok {
		return migrate.Setting{Name: name, Value: usual}
	}
	found.Value = strings.ReplaceAll(found.Value, "%%", "%")
	if strings.Contains(found.Value, "%(") {
		h.ToDo(found.Line, name, "values of other settings are not filled in here: write it out and migrate again")
	}
	return found
}

// service converts the section of one.
func (h *converter) service(s *section) {
	v := config.VIP{Name: migrate.DNSName(s.name, "vip"), Announce: config.AnnounceKernel}
	disabled := h.get(s, "check_disabled", "true")
	on, known := map[string]bool{"1": true, "yes": true, "true": true, "on": true, "0": false, "no": false, "false": false, "off": false}[strings.ToLower(disabled.Value)]
	advertised := h.get(s, "on_disabled", "withdraw").Value == "advertise"
	switch {
	case !known:
		h.ToDo(disabled.Line, disabled.Name, "%s is neither true nor false: the service is left out", migrate.Quoted(disabled.Value))
		return
	case on && !advertised:
		h.Note(s.line, s.name, "its check is disabled, as it is unless check_disabled is false, and it is withdrawn: left out")
		return
	}
	if prefix := h.get(s, "ip_prefix", ""); prefix.Value != "" {
		h.Place(&v, prefix.Line, prefix.Name, prefix.Value)
	}
	if command := h.get(s, "check_cmd", ""); !on && command.Value != "" {
		if check := h.AddCommand(s.name, command.Value, command.Line, command.Name); check != nil {
			h.SetPace(check, h.get(s, "check_interval", "10"), h.get(s, "check_timeout", "2"), h.get(s, "check_rise", "2"), h.get(s, "check_fail", "2"))
			v.Checks = []string{check.Name}
		}
	}
	path := h.AddVIP(v, s.line)
	if len(v.Addresses) == 0 {
		h.Leave(path+".addresses", s.line, "the VIP's addresses: the service has none that could be read", "addresses: [ADDRESS]")
	}
	h.LeaveChecks(path, s.line, v.Checks, nil)
}
