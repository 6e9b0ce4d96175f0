package exabgp

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/migrate"
)

// process converts a process that runs a healthcheck to VIPs and checks.
func (e *converter) process(s *migrate.Statement) {
	e.LeftOut(e.table, inProcess, s.Block)
	run := s.Last("run")
	words, ok := healthcheck(run.Args())
	if !ok {
		e.ToDo(s.Line, s.Arg(0), "does not run ExaBGP's healthcheck directly: write VIPs and checks in place of its announcements")
		return
	}
	o := e.options(words, run.Line)
	v := config.VIP{Name: migrate.DNSName(o.Setting("--name", s.Arg(0)).Value, "vip"), Announce: config.AnnounceBGP, OnFailure: config.Demote}
	if o.Last("--withdraw-on-down").Line > 0 {
		v.OnFailure = config.Withdraw
	}
	v.Peers = e.peers(o, s.Arg(0))
	e.attributes(&v, o)
	var lost []string
	v.Checks, lost = e.checks(o, v.Name)

	med, increase := e.Number(o.Setting("--up-metric", ""), 0, math.MaxUint32, 100), e.Number(o.Setting("--increase", ""), 0, math.MaxUint32, 1)
	ips := o.All("--ip")
	if n := len(ips); n > 0 {
		start := int(e.Number(o.Setting("--start-ip", ""), 0, math.MaxUint16, 0)) % n
		ips = slices.Concat(ips[start:], ips[:start])
	}
	groups := [][]*migrate.Statement{ips}
	if increase > 0 && len(ips) > 0 {
		groups = slices.Collect(slices.Chunk(ips, 1))
	}
	for _, group := range groups {
		v := v
		v.MED = new(med)
		med += increase
		for _, ip := range group {
			e.Place(&v, ip.Line, "--ip", ip.Arg(0))
		}
		e.AddVIP(v, run.Line, lost...)
	}
}

// checks converts the command of a healthcheck, and the file that disables it. lost describes a command that
// could not be converted.
func (e *converter) checks(o *migrate.Statement, name string) (names, lost []string) {
	if command := o.Setting("--command", ""); command.Line > 0 {
		check := e.AddCommand(name, command.Value, command.Line, command.Name)
		if check == nil {
			lost = []string{"the command"}
		} else {
			names = []string{check.Name}
			e.SetPace(check, o.Setting("--fast-interval", "1"), o.Setting("--timeout", "5"), o.Setting("--rise", "3"), o.Setting("--fall", "3"))
			if check.Exec != nil {
				check.Exec.User = o.Setting("--user", "").Value
			}
		}
	}
	if file := o.Setting("--disable", ""); file.Line > 0 {
		_, added := e.AddCheck(health.Check{Name: name + "-enabled", File: &health.File{Path: file.Value}, Not: true}, file.Line)
		names = append(names, added)
	}
	return names, lost
}

// peers returns the peers that receive a VIP: their neighbor names the process, and the healthcheck selects
// them. Nil means all.
func (e *converter) peers(o *migrate.Statement, process string) []string {
	wanted := o.All("--neighbor")
	peers := slices.DeleteFunc(slices.Clone(e.heard[process]), func(peer string) bool {
		return len(wanted) > 0 && !slices.ContainsFunc(wanted, func(n *migrate.Statement) bool { return n.Arg(0) == peer || n.Arg(0) == "*" })
	})
	switch len(peers) {
	case 0:
		e.ToDo(o.Line, process, "no neighbor receives it in ExaBGP, by its api and --neighbor: in Herald all peers do")
		return nil
	case len(e.BGP.Peers):
		return nil
	}
	return peers
}

// attributes converts the path attributes of the VIP's routes while it is up, except the metric.
func (e *converter) attributes(v *config.VIP, o *migrate.Statement) {
	list := func(name string) []string {
		return strings.Fields(strings.NewReplacer("[", " ", "]", " ", ",", " ").Replace(o.Setting(name, "").Value))
	}
	v.Communities = parseList(e, o, "--community", list("--community"), v1alpha1.ParseCommunity)
	v.LargeCommunities = parseList(e, o, "--large-community", list("--large-community"), v1alpha1.ParseLargeCommunity)
	if preference := o.Setting("--local-preference", ""); preference.Line > 0 {
		v.LocalPref = new(e.Number(preference, 0, math.MaxUint32, 100))
	}
	path, own := list("--as-path"), strconv.FormatUint(uint64(e.BGP.ASN), 10)
	if slices.ContainsFunc(path, func(asn string) bool { return asn != own }) {
		e.ToDo(o.Line, "--as-path", "Herald prepends only its own ASN: see vips[].prepend")
		return
	}
	v.Prepend = max(0, len(path)-1) // BGP adds one
}

// parseList parses the values of an option and notes invalid ones.
func parseList[T any](e *converter, o *migrate.Statement, option string, list []string, parse func(string) (T, error)) []T {
	var out []T
	for _, s := range list {
		v, err := parse(s)
		if err != nil {
			e.ToDo(o.Line, option, "%v", err)
			continue
		}
		out = append(out, v)
	}
	return out
}
