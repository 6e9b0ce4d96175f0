package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
)

// maxPassword is the longest TCP MD5 password Linux takes (TCP_MD5SIG_MAXKEYLEN), in bytes.
const maxPassword = 80

// Option is an input of [Parse] from outside the file.
type Option func(*options)

type options struct{ hostname, nodeName string }

// Hostname makes name, in lower case, the default of nodeName.
func Hostname(name string) Option {
	return func(o *options) { o.hostname = name }
}

// NodeName makes name the nodeName, whatever the file and the host say; an empty one says nothing.
func NodeName(name string) Option {
	return func(o *options) { o.nodeName = name }
}

// Parse reads a configuration from data; name is what errors call the file. It
// touches no other file: passwords and keys stay empty. The error is of type [Errors].
func Parse(name string, data []byte, opts ...Option) (*Config, error) {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	r := newReport(name)
	c := parse(r, data, o)
	if err := r.err(); err != nil {
		return nil, err
	}
	return c, nil
}

// parse reports what is wrong with data and returns what could be read of it.
func parse(r *report, data []byte, o options) *Config {
	c := new(Config)
	root := parseYAML(r, data)
	if root == nil {
		return c
	}
	d := newDecoder(r, root)
	d.decode("", root, reflect.ValueOf(c).Elem())
	if d.left < 0 {
		return c // cut short: judging the rest would mislead
	}
	c.derive(o)
	validate(r, c, o)
	return c
}

// Load reads the configuration in the file at path, and the passwords and keys
// in the files it names. Files of health checks may appear later and are not looked
// at. The error is of type [Errors] unless the file itself cannot be read.
func Load(path string, opts ...Option) (*Config, error) {
	return load(path, readFile, opts...)
}

// load is Load, reading each file once, with read.
func load(name string, read func(string) ([]byte, error), opts ...Option) (*Config, error) {
	data, err := read(name)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	var o options
	if o.hostname, err = os.Hostname(); err != nil {
		o.hostname = "" // matters only, and is reported, if the file has no nodeName
	}
	for _, opt := range opts {
		opt(&o)
	}
	r := newReport(name)
	c := parse(r, data, o)
	c.readPasswords(r, read)
	c.readKeys(r, read)
	if err := r.err(); err != nil {
		return nil, err
	}
	return c, nil
}

// readPasswords reads the password files that c names, each once even if peers share it.
func (c *Config) readPasswords(r *report, read func(string) ([]byte, error)) {
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
			r.errorf(path("bgp.peers").item(i).field("passwordFile"), "%v", got.err)
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

// readFile reads a file up to a size that no configuration or password has.
func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFileSize+1))
}
