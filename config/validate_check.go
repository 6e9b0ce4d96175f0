package config

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

func (v validator) checks() {
	checks := v.config.Checks
	v.names("checks", len(checks), func(i int) string { return checks[i].Name })
	for i := range checks {
		v.check(path("checks").item(i), &checks[i])
	}
}

func (v validator) check(p path, c *Check) {
	switch {
	case c.HTTP == nil && c.TCP == nil:
		v.errorf(p, "give it http or tcp")
	case c.HTTP != nil && c.TCP != nil:
		v.errorf(p, "has both http and tcp: make them two checks")
	}
	if c.HTTP != nil {
		v.http(p.field("http"), c.HTTP)
	}
	if c.TCP != nil {
		v.tcp(p.field("tcp"), c.TCP)
	}
	v.duration(p.field("interval"), c.Interval, 10*time.Millisecond, time.Minute, "10ms to 1m")
	v.duration(p.field("timeout"), c.Timeout, 10*time.Millisecond, time.Minute, "10ms to 1m")
	v.between(p.field("rise"), c.Rise, 1, 100)
	v.between(p.field("fall"), c.Fall, 1, 100)
}

func (v validator) tcp(p path, c *TCPCheck) {
	p = p.field("address")
	switch {
	case c.Address == "":
		v.errorf(p, "missing: give host:port")
	case !isHostPort(c.Address, false):
		v.errorf(p, "want host:port such as 127.0.0.1:5001, got %s", quote(c.Address))
	}
}

func (v validator) http(p path, c *HTTPCheck) {
	scheme, err := checkURL(c.URL)
	if err != nil {
		v.errorf(p.field("url"), "%v", err)
	}
	v.tls(p, c, scheme)
	v.file(p.field("tokenFile"), c.TokenFile)
	if len(c.Status) == 0 {
		v.errorf(p.field("status"), "list at least one status")
	}
	for i, status := range c.Status {
		item := p.field("status").item(i)
		v.between(item, status, 100, 599)
		if slices.Contains(c.Status[:i], status) {
			v.errorf(item, "%d is listed twice", status)
		}
	}
}

// tls judges the fields of c that only https uses.
func (v validator) tls(p path, c *HTTPCheck, scheme string) {
	if scheme == "http" {
		for _, f := range []struct {
			name string
			set  bool
		}{
			{"caFile", c.CAFile != ""},
			{"serverName", c.ServerName != ""},
			{"insecureSkipVerify", c.InsecureSkipVerify},
			{"clientCertFile", c.ClientCertFile != ""},
			{"clientKeyFile", c.ClientKeyFile != ""},
		} {
			if f.set {
				v.errorf(p.field(f.name), "an http url has no certificates: use https or remove it")
			}
		}
		return
	}
	v.file(p.field("caFile"), c.CAFile)
	v.file(p.field("clientCertFile"), c.ClientCertFile)
	v.file(p.field("clientKeyFile"), c.ClientKeyFile)
	switch {
	case c.ClientCertFile != "" && c.ClientKeyFile == "":
		v.errorf(p.field("clientKeyFile"), "missing: clientCertFile needs its key")
	case c.ClientCertFile == "" && c.ClientKeyFile != "":
		v.errorf(p.field("clientCertFile"), "missing: clientKeyFile needs its certificate")
	}
	if c.InsecureSkipVerify && c.CAFile != "" {
		v.errorf(p.field("caFile"), "insecureSkipVerify makes no use of it: remove one")
	}
}

// file refuses a relative path: a daemon's working directory is no one's
// intention. It does not repeat what was given instead, as that may be a secret.
func (v validator) file(p path, name string) {
	if name != "" && !filepath.IsAbs(name) {
		v.errorf(p, "want the absolute path of a file")
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
