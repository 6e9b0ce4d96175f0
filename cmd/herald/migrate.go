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

type migrateFlags struct {
	File string `arg:"" placeholder:"FILE" help:"The file to convert; - is standard input."`
	electionFlags
}

// electionFlags are settings of the election, which no input has.
type electionFlags struct {
	Member  []string `sep:"none" placeholder:"NAME=ADDRESS" help:"A node that votes on a flat layer 2, with or without a port. Can be repeated."`
	KeyFile string   `placeholder:"FILE" help:"The key file on the nodes, if herald keygen has made one."`
}

type migrateKubeVIP struct{ migrateFlags }

func (c migrateKubeVIP) Run() error {
	return c.run(kubevip.Convert, migrate.Options{})
}

type migrateKeepalived struct {
	migrateFlags
	ConfigID string `placeholder:"ID" help:"The name that selects lines that begin with @, as keepalived's --config-id. Default: the host's name."`
}

func (c migrateKeepalived) Run() error {
	id := c.ConfigID
	if id == "" {
		host, _ := os.Hostname() // without one, no such line applies
		id, _, _ = strings.Cut(host, ".")
	}
	return c.run(keepalived.Convert, migrate.Options{ConfigID: id})
}

// Validate is called by the parser.
func (c electionFlags) Validate() error {
	_, err := c.members()
	return err
}

// run converts the file.
func (c migrateFlags) run(convert func([]byte, migrate.Options) (*migrate.Result, error), o migrate.Options) error {
	data, name, err := read(c.File)
	if err != nil {
		return err
	}
	if o.Members, err = c.members(); err != nil {
		return err
	}
	o.File, o.KeyFile = name, c.KeyFile
	result, err := convert(data, o)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return write(result, name)
}

// migrateFiles are the input files of one program.
type migrateFiles struct {
	Files []string `arg:"" name:"file" placeholder:"FILE" help:"The files to convert, all of one configuration; - is standard input."`
}

// convert converts the files.
func (c migrateFiles) convert(convert func([]migrate.File, migrate.Options) (*migrate.Result, error), o migrate.Options) (*migrate.Result, error) {
	var files []migrate.File
	for _, file := range c.Files {
		data, name, err := read(file)
		if err != nil {
			return nil, err
		}
		files = append(files, migrate.File{Name: name, Data: data})
	}
	o.File = files[0].Name
	return convert(files, o)
}

// run converts the files and writes the result.
func (c migrateFiles) run(convert func([]migrate.File, migrate.Options) (*migrate.Result, error), o migrate.Options) error {
	result, err := c.convert(convert, o)
	if err != nil {
		return err
	}
	return write(result, strings.Join(c.Files, ", "))
}

type migrateExaBGP struct{ migrateFiles }

func (c migrateExaBGP) Run() error { return c.run(exabgp.Convert, migrate.Options{}) }

type migrateAnycast struct{ migrateFiles }

func (c migrateAnycast) Run() error { return c.run(healthchecker.Convert, migrate.Options{}) }

type migrateMetalLB struct {
	migrateFiles
	Services bool   `help:"Print only the commands that give the Services in the files Herald's annotations."`
	LBClass  string `name:"lb-class" placeholder:"CLASS" help:"The value of MetalLB's --lb-class, if it has one."`
	To       string `placeholder:"NAMESPACE" help:"The namespace that Herald runs in. Default: herald-system."`
	electionFlags
}

func (c migrateMetalLB) Run() error {
	o := migrate.Options{Class: c.LBClass, Namespace: c.To, KeyFile: c.KeyFile}
	var err error
	if o.Members, err = c.members(); err != nil {
		return err
	}
	if !c.Services {
		return c.run(metallb.Convert, o)
	}
	result, err := c.convert(metallb.Convert, o)
	if err != nil {
		return err
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
