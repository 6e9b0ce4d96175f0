package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"

	"github.com/herald-vip/herald/election/electorate"
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
		whole = c.addDropIns(r, dropInsOf(name), o.read) && whole
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
