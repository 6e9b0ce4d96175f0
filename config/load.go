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

	"github.com/herald-vip/herald/config/yaml"
	"github.com/herald-vip/herald/election/electorate"
)

// maxPassword is the longest TCP MD5 password Linux takes (TCP_MD5SIG_MAXKEYLEN), in bytes.
const maxPassword = 80

// Option is an input of [Parse] from outside the file.
type Option func(*options)

type options struct {
	hostname, nodeName string
	read               func(string) ([]byte, error)
}

// Hostname makes name, in lower case, the default of nodeName.
func Hostname(name string) Option {
	return func(o *options) { o.hostname = name }
}

// NodeName makes name the nodeName, whatever the file and the host say; an empty one says nothing.
func NodeName(name string) Option {
	return func(o *options) { o.nodeName = name }
}

// ReadBy has [Load] read each file, once, with read instead of [ReadFile]; and [Parse] the drop-ins, which it leaves out else.
func ReadBy(read func(name string) ([]byte, error)) Option {
	return func(o *options) { o.read = read }
}

// Parse reads a configuration from data; name is what errors call the file. It
// touches no other file unless [ReadBy] says how: passwords and keys stay empty. The error is of type [Errors].
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

// parse reports what is wrong with data, and with the drop-ins to it, and returns what could be read of them.
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

// YAML writes c as a configuration file with all defaults filled in. Parsing
// it gives c again, less the passwords.
func (c *Config) YAML() []byte {
	w := yaml.Writer{Tag: "yaml", Omit: func(value, usual reflect.Value) bool {
		return value.IsZero() && usual.IsZero() && value.Type() != reflect.TypeFor[electorate.Quorum]()
	}}
	w.Struct("", c)
	return []byte(w.String())
}

// Load reads the configuration in the file at path, what the drop-ins in the folder
// path.d add to it, and the passwords and keys in the files it names. Files of health checks may appear later and are not looked
// at. The error is of type [Errors] unless the file itself cannot be read.
func Load(path string, opts ...Option) (*Config, error) {
	o := options{read: ReadFile}
	if name, err := os.Hostname(); err == nil { // it matters only, and is reported, if the file has no nodeName
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

// readPasswords reads the password files that c names, each once even if peers share it.
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
		if !filepath.IsAbs(peer.PasswordFile) { // absent, or reported
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

// ParsePassword is the TCP MD5 password that data holds: one line.
func ParsePassword(data []byte) (string, error) {
	data = bytes.TrimSuffix(data, []byte("\n"))
	switch {
	case len(data) == 0:
		return "", errors.New("it is empty, want a password")
	case bytes.ContainsAny(data, "\r\n\x00"):
		return "", errors.New("it has more than one line, want only a password")
	case len(data) > maxPassword:
		return "", fmt.Errorf("the password has %d bytes, TCP MD5 takes at most %d", len(data), maxPassword)
	}
	return string(data), nil
}

// ReadFile reads a file up to a size that no configuration or password has. Of a folder, whose name
// ends in /, it is the paths of the drop-ins in it, for [Names].
func ReadFile(name string) ([]byte, error) {
	if strings.HasSuffix(name, "/") {
		return list(name)
	}
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // or a pipe that nobody writes to is waited for
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, yaml.MaxSize+1))
}
