package clab

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// file is a topology file as written.
type file struct {
	Name     string `yaml:"name"`
	Topology struct {
		Defaults definition            `yaml:"defaults"`
		Kinds    mapping[definition]   `yaml:"kinds"`
		Groups   mapping[definition]   `yaml:"groups"`
		Nodes    mapping[definition]   `yaml:"nodes"`
		Links    []located[linkRecord] `yaml:"links"`
	} `yaml:"topology"`

	// Irrelevant here: names and addresses of Docker's own network.
	Prefix   any `yaml:"prefix"`
	Mgmt     any `yaml:"mgmt"`
	Settings any `yaml:"settings"`
	Debug    any `yaml:"debug"`
}

// definition holds the settings of defaults, a kind or a node.
type definition struct {
	Kind        string            `yaml:"kind"`
	Group       string            `yaml:"group"`
	Image       string            `yaml:"image"`
	Hostname    string            `yaml:"hostname"`
	Entrypoint  string            `yaml:"entrypoint"`
	Cmd         string            `yaml:"cmd"`
	NetworkMode string            `yaml:"network-mode"`
	Env         map[string]string `yaml:"env"`
	Sysctls     map[string]string `yaml:"sysctls"`
	Exec        []string          `yaml:"exec"`
	Binds       []string          `yaml:"binds"`

	Ignored ignored `yaml:",inline"`
}

// ignored holds the keys of a node that only Docker or a reader needs: the registry,
// the management network, labels, limits and privileges.
type ignored struct {
	Aliases         any `yaml:"aliases"`
	AutoRemove      any `yaml:"auto-remove"`
	CapAdd          any `yaml:"cap-add"`
	CgroupParent    any `yaml:"cgroup-parent"`
	CgroupnsMode    any `yaml:"cgroupns-mode"`
	CPU             any `yaml:"cpu"`
	CPUSet          any `yaml:"cpu-set"`
	DNS             any `yaml:"dns"`
	Healthcheck     any `yaml:"healthcheck"`
	ImagePullPolicy any `yaml:"image-pull-policy"`
	Labels          any `yaml:"labels"`
	LinkApplyMode   any `yaml:"link-apply-mode"`
	Memory          any `yaml:"memory"`
	MgmtIPv4        any `yaml:"mgmt-ipv4"`
	MgmtIPv6        any `yaml:"mgmt-ipv6"`
	Ports           any `yaml:"ports"`
	Position        any `yaml:"position"`
	Privileged      any `yaml:"privileged"`
	RestartPolicy   any `yaml:"restart-policy"`
	Runtime         any `yaml:"runtime"`
	SecurityOpts    any `yaml:"security-opts"`
	ShmSize         any `yaml:"shm-size"`
}

// linkRecord is a link in containerlab's brief form.
type linkRecord struct {
	Endpoints []string `yaml:"endpoints"`
	MTU       int      `yaml:"mtu"`

	Labels any `yaml:"labels"` // irrelevant
	Vars   any `yaml:"vars"`   // irrelevant
}

// located is a value with its position in the file.
type located[T any] struct {
	position
	value T
}

// UnmarshalYAML implements yaml.NodeUnmarshaler.
func (l *located[T]) UnmarshalYAML(n ast.Node) error {
	l.position = positionOf(n.GetToken())
	return yaml.NodeToValue(n, &l.value, yaml.Strict())
}

// mapping is a YAML mapping in the order of the file.
type mapping[T any] []entry[T]

// entry is one key of a mapping.
type entry[T any] struct {
	position
	name  string
	value T
}

// UnmarshalYAML implements yaml.NodeUnmarshaler.
func (m *mapping[T]) UnmarshalYAML(n ast.Node) error {
	pairs, ok := n.(ast.MapNode)
	if !ok {
		return mistakef(positionOf(n.GetToken()), "want a mapping of names")
	}
	for i := pairs.MapRange(); i.Next(); {
		e := entry[T]{position: positionOf(i.Key().GetToken())}
		if err := yaml.NodeToValue(i.Key(), &e.name); err != nil {
			return err
		}
		if i.Value().Type() != ast.NullType { // `name:` alone sets nothing
			if err := yaml.NodeToValue(i.Value(), &e.value, yaml.Strict()); err != nil {
				return err
			}
		}
		*m = append(*m, e)
	}
	return nil
}

// decode reads the one YAML document of a topology file.
func decode(text []byte) (_ *file, err error) {
	// go-yaml v1.19.2 dereferences nil on some malformed files, such as a tag without a value.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the YAML parser gave up: %v", r)
		}
	}()
	var f file
	d := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict())
	if err := d.Decode(&f); errors.Is(err, io.EOF) {
		return nil, errors.New("the file is empty")
	} else if err != nil {
		return nil, err
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, errors.New("the file has more than one YAML document")
	}
	return &f, nil
}

// errMagic is the error for a value with one of containerlab's own variables.
var errMagic = errors.New("the __clab...__ variables are not supported; write the value out")

// magic is the prefix of containerlab's own variables.
const magic = "__clab"

// wrong returns an error about the value of a key.
func wrong(key, value string, err error) error {
	return fmt.Errorf("%s: %q: %w", key, value, err)
}

// position is a place in a file, both counted from 1; column 0 is unknown.
type position struct{ line, column int }

// mistake is an error at a place in the file.
type mistake struct {
	position
	text string
}

func (m *mistake) Error() string { return m.text }

func mistakef(p position, format string, args ...any) error {
	return &mistake{p, fmt.Sprintf(format, args...)}
}

func positionOf(t *token.Token) position {
	if t == nil || t.Position == nil {
		return position{}
	}
	return position{t.Position.Line, t.Position.Column}
}

// locate prefixes an error's text with file, line and column.
func locate(path string, err error) error {
	var at position
	text := err.Error()
	if m, ok := errors.AsType[*mistake](err); ok {
		at = m.position
	} else if y, ok := errors.AsType[yaml.Error](err); ok {
		at, text = positionOf(y.GetToken()), y.GetMessage()
	}
	switch {
	case at.line == 0:
		return fmt.Errorf("%s: %s", path, text)
	case at.column == 0:
		return fmt.Errorf("%s:%d: %s", path, at.line, text)
	}
	return fmt.Errorf("%s:%d:%d: %s", path, at.line, at.column, text)
}

// refuseTemplate reports the first Go template action of a file: containerlab would
// execute it, this package does not.
func refuseTemplate(data []byte) error {
	i := bytes.Index(data, []byte("{{"))
	if i < 0 {
		return nil
	}
	line := 1 + bytes.Count(data[:i], []byte("\n"))
	return mistakef(position{line: line}, "templates ({{ }}) are not supported; write the file out")
}
