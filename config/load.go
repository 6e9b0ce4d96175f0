package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/internal/yaml"
)

// maxPassword is the maximum length of a TCP MD5 password on Linux (TCP_MD5SIG_MAXKEYLEN), in bytes.
const maxPassword = 80

// Option is an input of [Parse] from outside the file.
type Option func(*options)

type options struct {
	hostname, nodeName string
	read               func(string) ([]byte, error)
}

// Hostname sets the default of nodeName to name in lower case.
func Hostname(name string) Option {
	return func(o *options) { o.hostname = name }
}

// NodeName sets the nodeName and overrides the file and the host; an empty name has no effect.
func NodeName(name string) Option {
	return func(o *options) { o.nodeName = name }
}

// ReadBy makes [Load] read each file once with read instead of [ReadFile], and [Parse] read the drop-ins with it.
func ReadBy(read func(name string) ([]byte, error)) Option {
	return func(o *options) { o.read = read }
}

// Parse reads a configuration from data; errors call the file name. Without [ReadBy] it
// reads no other file: there are no drop-ins, and passwords and keys stay empty. The error is of type [Errors].
func Parse(name string, data []byte, opts ...Option) (*Config, error) {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	r := yaml.NewReport(name)
	c := parse(r, name, data, o)
	if err := r.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

// parse reads data and its drop-ins, reports their mistakes and returns all that could be read.
func parse(r *yaml.Report, name string, data []byte, o options) *Config {
	c := new(Config)
	whole := yaml.Decode(r, data, c)
	if o.read != nil {
		whole = c.addDropIns(r, name+".d/", o.read) && whole
	}
	if whole {
		c.derive(o)
		validate(r, c, o)
	}
	return c
}

// YAML returns c as a configuration file with all defaults filled in. Parsing
// it gives c again, without passwords and keys.
func (c *Config) YAML() []byte {
	w := yaml.Writer{Tag: "yaml", Omit: func(value, usual reflect.Value) bool {
		return value.IsZero() && usual.IsZero() && value.Type() != reflect.TypeFor[electorate.Quorum]()
	}}
	w.Struct("", c)
	return []byte(w.String())
}

// Load reads the configuration file at path, the drop-ins in the folder path.d, and the
// password and key files they name. It does not read files of health checks, which may appear later.
// The error is of type [Errors] unless the file itself cannot be read.
func Load(path string, opts ...Option) (*Config, error) {
	o := options{read: ReadFile}
	if name, err := os.Hostname(); err == nil { // an error matters only if the file has no nodeName, and is reported then
		o.hostname = name
	}
	for _, opt := range opts {
		opt(&o)
	}
	data, err := o.read(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	r := yaml.NewReport(path)
	c := parse(r, path, data, o)
	c.readPasswords(r, o.read)
	c.readKeys(r, o.read)
	if err := r.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

// readPasswords reads the password files of the peers, each file once.
func (c *Config) readPasswords(r *yaml.Report, read func(string) ([]byte, error)) {
	if c.BGP == nil {
		return
	}
	type result struct {
		password string
		err      error
	}
	results := map[string]result{}
	for i := range c.BGP.Peers {
		peer := &c.BGP.Peers[i]
		if !filepath.IsAbs(peer.PasswordFile) { // absent, or a reported mistake
			continue
		}
		got, ok := results[peer.PasswordFile]
		if !ok {
			data, err := read(peer.PasswordFile)
			if err == nil {
				got.password, err = ParsePassword(data)
			}
			got.err = err
			results[peer.PasswordFile] = got
		}
		peer.Password = got.password
		if got.err != nil {
			r.Errorf(yaml.Path("bgp.peers").Item(i).Field("passwordFile"), "%v", got.err)
		}
	}
}

// ParsePassword returns the TCP MD5 password in data, which must be one line.
func ParsePassword(data []byte) (string, error) {
	data = bytes.TrimSuffix(data, []byte("\n"))
	switch {
	case len(data) == 0:
		return "", errors.New("the password is empty: give one")
	case bytes.ContainsAny(data, "\r\n\x00"):
		return "", errors.New("there is more than one line: keep only the password")
	case len(data) > maxPassword:
		return "", fmt.Errorf("the password has %d bytes: TCP MD5 allows at most %d", len(data), maxPassword)
	}
	return string(data), nil
}

// ReadFile reads a file up to just over the maximum size of a configuration. If name ends in /, it
// returns the paths of the drop-ins in that folder, for [Names].
func ReadFile(name string) ([]byte, error) {
	if strings.HasSuffix(name, "/") {
		return list(name)
	}
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // does not wait for the writer of a pipe
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, yaml.MaxSize+1))
}

// dropIn is the content of a drop-in file, which adds to the configuration.
type dropIn struct {
	VIPs   []VIP          `yaml:"vips"`
	Checks []health.Check `yaml:"checks"`
}

// addDropIns adds the content of the drop-ins in folder. It returns false if validating the result would mislead.
func (c *Config) addDropIns(r *yaml.Report, folder string, read func(string) ([]byte, error)) bool {
	list, err := read(folder)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			r.Errorf("", "%v", err)
		}
		return true
	}
	whole := true
	for _, name := range Names(list) {
		part, add := yaml.NewReport(name), dropIn{}
		if data, err := read(name); err != nil {
			part.Errorf("", "%v", err)
			whole = false
		} else if !yaml.Decode(part, data, &add) {
			whole = false
		}
		r.Append(part, map[yaml.Path]int{"vips": len(c.VIPs), "checks": len(c.Checks)})
		c.VIPs, c.Checks = append(c.VIPs, add.VIPs...), append(c.Checks, add.Checks...)
	}
	return whole
}

// list returns the paths of the drop-ins in folder: the files *.yaml that are not hidden, in order, each terminated by a zero byte.
func list(folder string) ([]byte, error) {
	entries, err := os.ReadDir(folder) // in order
	var out []byte
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(name, ".yaml") && name[0] != '.' {
			out = append(append(out, filepath.Join(folder, name)...), 0)
		}
	}
	return out, err
}

// Names returns the paths that [ReadFile] found in a folder.
func Names(list []byte) []string {
	return strings.FieldsFunc(string(list), func(r rune) bool { return r == 0 })
}

type (
	// Error is a mistake in a configuration file.
	Error = yaml.Error
	// Errors are all mistakes of a configuration file, in the order of their positions.
	Errors = yaml.Errors
)

// CheckReload returns an error if new differs from old in a way that needs a restart. The old configuration is
// nil at the start, which allows everything.
func CheckReload(old, new *Config) error {
	const restart = "cannot change while running: restart herald to apply it"
	if old == nil {
		return nil
	}
	switch {
	case old.Admin.Socket != new.Admin.Socket:
		return fmt.Errorf("admin.socket %s", restart)
	case old.Metrics.Listen != new.Metrics.Listen:
		return fmt.Errorf("metrics.listen %s", restart)
	case old.Realtime != new.Realtime:
		return fmt.Errorf("realtime %s", restart)
	case old.NodeName != new.NodeName:
		return fmt.Errorf("nodeName %s", restart)
	case old.BGP != nil && new.BGP == nil:
		return fmt.Errorf("bgp cannot be removed while running: restart herald to apply it")
	case (old.Election == nil) != (new.Election == nil):
		return fmt.Errorf("election cannot be added or removed while running: restart herald to apply it")
	case old.ARP != new.ARP:
		return fmt.Errorf("arp %s", restart)
	}
	if field := servicesChanged(old.Services, new.Services); field != "" {
		return fmt.Errorf("%s %s", field, restart)
	}
	return unmoved(old, new)
}

// Removed lists the parts of old that new lacks: addresses of VIPs with their checks, peers and prefixes, BGP
// peers, balancers with their backends, and members of the election.
func Removed(old, new *Config) (removed []string) {
	stays := make(map[string]bool)
	for _, p := range new.parts() {
		stays[p.String()] = true
	}
	for _, p := range old.parts() {
		if !stays[p.String()] && (p.owner == "" || stays[p.owner]) {
			removed = append(removed, p.String())
		}
	}
	return removed
}

// part is a part of a configuration that [Removed] compares.
type part struct {
	name  string
	owner string // the part that contains it; empty if none does
}

func (p part) String() string {
	if p.owner == "" {
		return p.name
	}
	return p.name + " of " + p.owner
}

func (c *Config) parts() (parts []part) {
	for _, v := range c.VIPs {
		for _, addr := range v.Addresses {
			vip := "vip " + addr.String()
			parts = append(parts, part{name: vip})
			for _, check := range v.Checks {
				parts = append(parts, part{"check " + check, vip})
			}
			if len(v.Peers) > 0 {
				parts = append(parts, part{"peers", vip})
			}
			for _, prefix := range v.Prefixes {
				parts = append(parts, part{"prefix " + prefix.String(), vip})
			}
		}
	}
	for _, check := range c.Checks {
		if check.Not {
			parts = append(parts, part{"not: true", "check " + check.Name})
		}
	}
	if c.BGP != nil {
		for _, p := range c.BGP.Peers {
			parts = append(parts, part{name: "peer " + p.Name()})
		}
	}
	for _, b := range c.Balancers {
		balancer := "balancer " + b.Name
		parts = append(parts, part{name: balancer})
		if s := b.Backends.Static; s != nil {
			for _, addr := range s.Addresses {
				parts = append(parts, part{"backend " + addr.String(), balancer})
			}
		}
	}
	if c.Election != nil {
		for _, name := range slices.Sorted(maps.Keys(c.Election.Members)) {
			parts = append(parts, part{name: "member " + name})
		}
	}
	return parts
}

// servicesChanged returns the name of the first field of the services section that differs; empty if all are equal.
func servicesChanged(old, new *Services) string {
	switch {
	case old == new:
		return ""
	case old == nil || new == nil:
		return "services"
	}
	before, after := reflect.ValueOf(*old), reflect.ValueOf(*new)
	for f := range before.Type().Fields() {
		if !reflect.DeepEqual(before.FieldByIndex(f.Index).Interface(), after.FieldByIndex(f.Index).Interface()) {
			return "services." + f.Tag.Get("yaml")
		}
	}
	return ""
}

// unmoved refuses an address that moves between VIPs, or changes its way of announcement, if a lease is involved. Nodes
// with the old file would use another lease or none.
func unmoved(old, new *Config) error {
	owner := make(map[netip.Addr]VIP)
	for _, v := range old.VIPs {
		for _, addr := range v.Addresses {
			owner[addr] = v
		}
	}
	for _, v := range new.VIPs {
		for _, addr := range v.Addresses {
			prev, ok := owner[addr]
			if !ok || prev.Announce != AnnounceARP && v.Announce != AnnounceARP {
				continue
			}
			if prev.Name != v.Name || prev.Announce != v.Announce {
				return fmt.Errorf("vips: %s cannot move from %s (%s) to %s (%s) while running, as nodes with the old file would answer too: remove it on all nodes first, then add it",
					addr, prev.Name, prev.Announce, v.Name, v.Announce)
			}
		}
	}
	return nil
}
