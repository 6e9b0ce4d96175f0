package config

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/miekg/dns"

	"github.com/herald-vip/herald/config/yaml"
)

func (v validator) check(p yaml.Path, c *Check) {
	switch all, given := kinds(c); len(given) {
	case 0:
		v.Errorf(p, "give it one of %s", strings.Join(all, ", "))
	case 1:
	default:
		v.Errorf(p, "has %s: make each a check of its own", strings.Join(given, " and "))
	}
	if c.HTTP != nil {
		v.http(p.Field("http"), c.HTTP)
	}
	if c.TCP != nil {
		v.tcp(p.Field("tcp"), c.TCP)
	}
	if c.Exec != nil {
		v.exec(p.Field("exec"), c.Exec)
	}
	if c.DNS != nil {
		v.dns(p.Field("dns"), c.DNS)
	}
	if c.GRPC != nil {
		v.grpc(p.Field("grpc"), c.GRPC)
	}
	if c.ICMP != nil {
		v.icmp(p.Field("icmp").Field("address"), c.ICMP.Address)
		if c.Not {
			v.Errorf(p.Field("not"), "has no effect with icmp: that a host is silent proves nothing, remove it")
		}
	}
	if c.File != nil {
		v.requiredFile(p.Field("file").Field("path"), c.File.Path)
	}
}

// kinds are the names of all kinds of checks, and of those that c has.
func kinds(c *Check) (all, given []string) {
	for f := range reflect.TypeFor[Check]().Fields() {
		if f.Type.Kind() != reflect.Pointer {
			continue
		}
		name := f.Tag.Get("yaml")
		all = append(all, name)
		if !reflect.ValueOf(c).Elem().FieldByIndex(f.Index).IsNil() {
			given = append(given, name)
		}
	}
	return all, given
}

// requiredFile is file for one that has to be given.
func (v validator) requiredFile(p yaml.Path, name string) {
	if name == "" {
		v.Errorf(p, "missing: give the absolute path of a file")
	}
	v.file(p, name)
}

func (v validator) tcp(p yaml.Path, c *TCPCheck) { v.hostPort(p.Field("address"), c.Address) }

func (v validator) hostPort(p yaml.Path, address string) {
	switch {
	case address == "":
		v.Errorf(p, "missing: give host:port")
	case !isHostPort(address, false):
		v.Errorf(p, "want host:port such as 127.0.0.1:5001, got %s", yaml.Quote(address))
	}
}

func (v validator) exec(p yaml.Path, c *Exec) {
	switch {
	case len(c.Command) == 0:
		v.Errorf(p.Field("command"), "missing: list the absolute path of a program, and its arguments")
	default:
		v.requiredFile(p.Field("command").Item(0), c.Command[0])
	}
	if c.User == "" || c.User == "root" || strings.Trim(c.User, "0") == "" {
		v.Errorf(p.Field("user"), "want the name or number of a user other than root, got %s", yaml.Quote(c.User))
	}
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"
	names := map[string]bool{}
	for i, s := range c.Environment {
		p := p.Field("environment").Item(i)
		name, _, ok := strings.Cut(s, "=")
		switch {
		case !ok || name == "" || strings.Trim(name, letters+"0123456789") != "" || !strings.ContainsAny(name[:1], letters):
			v.Errorf(p, "want NAME=value, with a name of letters, digits and _") // not repeated: it may be a secret
		case names[name]:
			v.Errorf(p, "%s is given twice", name)
		}
		names[name] = true
	}
}

func (v validator) dns(p yaml.Path, c *DNSCheck) {
	v.hostPort(p.Field("server"), c.Server)
	if _, ok := dns.IsDomainName(c.Name); c.Name == "" || !ok || strings.ContainsAny(c.Name, " \t;()\"") {
		v.Errorf(p.Field("name"), "want the name to look up, such as example.org, got %s", yaml.Quote(c.Name))
		return
	}
	if rr, err := dns.NewRR(dns.Fqdn(c.Name) + " IN " + c.Type + " " + c.Answer); c.Answer != "" && (err != nil || rr == nil) {
		v.Errorf(p.Field("answer"), "want a record of type %s as in a zone file, got %s", c.Type, yaml.Quote(c.Answer))
	}
}

func (v validator) http(p yaml.Path, c *HTTPCheck) {
	scheme, err := checkURL(c.URL)
	if err != nil {
		v.Errorf(p.Field("url"), "%v", err)
	}
	without := ""
	if scheme == "http" {
		without = "an http url has no certificates: use https or remove it"
	}
	v.tls(p, c, without)
	v.file(p.Field("tokenFile"), c.TokenFile)
	if len(c.Status) == 0 {
		v.Errorf(p.Field("status"), "list at least one status")
	}
	for i, status := range c.Status {
		if slices.Contains(c.Status[:i], status) {
			v.Errorf(p.Field("status").Item(i), "%d is listed twice", status)
		}
	}
}

func (v validator) grpc(p yaml.Path, c *GRPCCheck) {
	v.hostPort(p.Field("address"), c.Address)
	without := ""
	if c.Plaintext {
		without = "plaintext has no certificates: remove one"
	}
	v.tls(p, c.files(), without)
}

func (v validator) icmp(p yaml.Path, addr netip.Addr) {
	switch {
	case !addr.IsValid():
		v.Errorf(p, "missing: give the address of a host")
	case !isUnicast(addr):
		v.Errorf(p, "want the address of a host, got %s", addr)
	case addr.Is6() && addr.IsLinkLocalUnicast() && addr.Zone() == "":
		v.Errorf(p, "a link-local address needs a zone: write %s%%eth0 with the link's name", addr)
	}
}

// tls validates the fields of c that only TLS uses, or refuses them with a sentence, if there is none.
func (v validator) tls(p yaml.Path, c *HTTPCheck, without string) {
	if without != "" {
		for name, given := range map[string]bool{
			"caFile": c.CAFile != "", "serverName": c.ServerName != "", "insecureSkipVerify": c.InsecureSkipVerify,
			"clientCertFile": c.ClientCertFile != "", "clientKeyFile": c.ClientKeyFile != "",
		} {
			if given {
				v.Errorf(p.Field(name), "%s", without)
			}
		}
		return
	}
	v.file(p.Field("caFile"), c.CAFile)
	v.file(p.Field("clientCertFile"), c.ClientCertFile)
	v.file(p.Field("clientKeyFile"), c.ClientKeyFile)
	switch {
	case c.ClientCertFile != "" && c.ClientKeyFile == "":
		v.Errorf(p.Field("clientKeyFile"), "missing: clientCertFile needs its key")
	case c.ClientCertFile == "" && c.ClientKeyFile != "":
		v.Errorf(p.Field("clientCertFile"), "missing: clientKeyFile needs its certificate")
	}
	if c.InsecureSkipVerify && c.CAFile != "" {
		v.Errorf(p.Field("caFile"), "insecureSkipVerify makes no use of it: remove one")
	}
}

// file refuses a relative path: a daemon's working directory is no one's
// intention. It does not repeat what was given instead, as that may be a secret.
func (v validator) file(p yaml.Path, name string) {
	if name != "" && !filepath.IsAbs(name) {
		v.Errorf(p, "want the absolute path of a file")
	}
}

// checkURL returns the scheme of a URL that a check can GET. Errors do not repeat the URL, as it may hold a secret.
func checkURL(s string) (scheme string, err error) {
	if s == "" {
		return "", errors.New("missing: give the URL to GET")
	}
	u, err := url.Parse(s)
	if err != nil {
		return "", errors.New("want a URL such as https://127.0.0.1:6443/readyz")
	}
	port, portErr := strconv.ParseUint(u.Port(), 10, 16)
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return "", errors.New("want a URL that begins with http:// or https://")
	case u.User != nil:
		return u.Scheme, errors.New("a URL may hold no user or password: use tokenFile")
	case u.Hostname() == "":
		return u.Scheme, errors.New("has no host, want a URL such as https://127.0.0.1:6443/readyz")
	case u.Port() != "" && (portErr != nil || port == 0):
		return u.Scheme, fmt.Errorf("want a port from 1 to 65535, got %s", u.Port())
	}
	return u.Scheme, nil
}
