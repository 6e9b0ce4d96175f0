package main

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/internal/yaml"
	"github.com/herald-vip/herald/migrate"
	"github.com/herald-vip/herald/migrate/exabgp"
	"github.com/herald-vip/herald/migrate/healthchecker"
	"github.com/herald-vip/herald/migrate/keepalived"
	"github.com/herald-vip/herald/migrate/kubevip"
	"github.com/herald-vip/herald/migrate/metallb"
)

// errByHand makes `herald migrate` exit with 3: the configuration is incomplete.
var errByHand = errors.New(`not complete: first do what the lines above with "to do" say`)

type migrateCommand struct {
	KubeVIP    migrateKubeVIP    `cmd:"" name:"kube-vip" help:"Convert a manifest that runs kube-vip, or a listing of its environment."`
	Keepalived migrateKeepalived `cmd:"" help:"Convert a keepalived.conf."`
	MetalLB    migrateMetalLB    `cmd:"" name:"metallb" help:"Convert the resources of MetalLB, or its old ConfigMap, and its Services."`
	ExaBGP     migrateExaBGP     `cmd:"" name:"exabgp" help:"Convert a configuration of ExaBGP whose processes run its healthcheck, and the files that their --config names."`
	Anycast    migrateAnycast    `cmd:"" name:"anycast-healthchecker" help:"Convert anycast-healthchecker.conf and the files of its services."`
}

type migrateFile struct {
	File string `arg:"" placeholder:"FILE" help:"The file to convert; - is standard input."`
}

type migrateFiles struct {
	Files []string `arg:"" name:"file" placeholder:"FILE" help:"The files to convert, all of one configuration; - is standard input."`
}

// electionFlags are settings of the election, which no input has.
type electionFlags struct {
	Member  []string `sep:"none" placeholder:"NAME=ADDRESS" help:"A node that votes on a flat layer 2, with or without a port. Can be repeated."`
	KeyFile string   `placeholder:"FILE" help:"The key file on the nodes, if herald keygen has made one."`
}

// Validate is called by the parser.
func (c electionFlags) Validate() error {
	_, err := c.members()
	return err
}

// options adds the flags to o.
func (c electionFlags) options(o migrate.Options) migrate.Options {
	o.Members, _ = c.members() // validated
	o.KeyFile = c.KeyFile
	return o
}

// converter converts the files of a program.
type converter func([]migrate.File, migrate.Options) (*migrate.Result, error)

// convert reads the files and converts them. name lists them.
func (c converter) convert(o migrate.Options, paths ...string) (result *migrate.Result, name string, err error) {
	var files []migrate.File
	var names []string
	for _, path := range paths {
		data, name, err := read(path)
		if err != nil {
			return nil, "", err
		}
		files, names = append(files, migrate.File{Name: name, Data: data}), append(names, name)
	}
	o.File = names[0]
	result, err = c(files, o)
	return result, strings.Join(names, ", "), err
}

// run converts the files and writes the result.
func (c converter) run(o migrate.Options, paths ...string) error {
	result, name, err := c.convert(o, paths...)
	if err != nil {
		return err
	}
	return write(result, name)
}

type migrateKubeVIP struct {
	migrateFile
	electionFlags
}

func (c migrateKubeVIP) Run() error {
	return converter(kubevip.Convert).run(c.options(migrate.Options{}), c.File)
}

type migrateKeepalived struct {
	migrateFile
	electionFlags
	ConfigID string `placeholder:"ID" help:"The name that selects lines that begin with @, as keepalived's --config-id. Default: the host's name."`
}

func (c migrateKeepalived) Run() error {
	id := c.ConfigID
	if id == "" {
		host, _ := os.Hostname() // without one, no such line applies
		id, _, _ = strings.Cut(host, ".")
	}
	return converter(keepalived.Convert).run(c.options(migrate.Options{ConfigID: id}), c.File)
}

type migrateExaBGP struct{ migrateFiles }

func (c migrateExaBGP) Run() error {
	return converter(exabgp.Convert).run(migrate.Options{}, c.Files...)
}

type migrateAnycast struct{ migrateFiles }

func (c migrateAnycast) Run() error {
	return converter(healthchecker.Convert).run(migrate.Options{}, c.Files...)
}

type migrateMetalLB struct {
	migrateFiles
	Services bool   `help:"Print only the commands that give the Services in the files Herald's annotations."`
	LBClass  string `name:"lb-class" placeholder:"CLASS" help:"The value of MetalLB's --lb-class, if it has one."`
	To       string `placeholder:"NAMESPACE" help:"The namespace that Herald runs in. Default: herald-system."`
	electionFlags
}

func (c migrateMetalLB) Run() error {
	result, name, err := converter(metallb.Convert).convert(c.options(migrate.Options{Class: c.LBClass, Namespace: c.To}), c.Files...)
	if err != nil {
		return err
	}
	if !c.Services {
		return write(result, name)
	}
	for _, command := range result.Commands {
		fmt.Println(command)
	}
	return nil
}

// write writes the configuration to standard output, and notes about it to standard error.
func write(result *migrate.Result, name string) error {
	for _, note := range result.Notes {
		fmt.Fprintln(os.Stderr, note)
	}
	if result.Config == nil && len(result.Commands) > 0 {
		return errByHand
	}
	if result.Config == nil {
		return fmt.Errorf("nothing in %s is for Herald to announce", name)
	}
	if _, err := os.Stdout.Write(result.Config); err != nil {
		return err
	}
	if !result.Complete() {
		return errByHand
	}
	return nil
}

// members returns the members in the flags, at the default port unless they give one.
func (c electionFlags) members() (map[string]netip.AddrPort, error) {
	members := map[string]netip.AddrPort{}
	for _, m := range c.Member {
		name, s, _ := strings.Cut(m, "=")
		if _, twice := members[name]; twice {
			return nil, fmt.Errorf("--member %s is there twice: want one address of each node", name)
		}
		addr, err := netip.ParseAddr(s)
		member := netip.AddrPortFrom(addr, migrate.GossipPort)
		if err != nil {
			member, err = netip.ParseAddrPort(s)
		}
		if err != nil {
			return nil, fmt.Errorf("--member %s: want NAME=ADDRESS, with or without a port", m)
		}
		members[name] = member
	}
	return members, nil
}

// read reads a file, or standard input for -, up to a size far beyond that of any configuration.
func read(file string) (data []byte, name string, err error) {
	if file != "-" {
		data, err = config.ReadFile(file)
		return data, file, err
	}
	if data, err = io.ReadAll(io.LimitReader(os.Stdin, yaml.MaxSize+1)); err != nil {
		return nil, "", fmt.Errorf("read stdin: %w", err)
	}
	return data, "stdin", nil
}
