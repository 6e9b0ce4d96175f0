package main

import (
	"fmt"
	"os"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/daemon"
	"github.com/herald-vip/herald/manifests"
)

type manifestCommand struct {
	Kind    manifests.Kind    `arg:"" enum:"static-pod,daemonset,systemd,agent,manager" help:"The manifest to print: static-pod, daemonset or systemd for a speaker; agent for a tenant's cluster, manager for the cluster that serves it."`
	Config  string            `placeholder:"FILE" help:"The configuration to fit: its files, addresses and rights; - is standard input. Default: a manifest that fits any configuration with all files in one folder."`
	Node    string            `placeholder:"NAME" help:"The node's name, if the configuration has no nodeName. Default: this host's."`
	Options manifests.Options `embed:""`
}

// Run prints a manifest. It reads the configuration and its drop-ins but no other file that they name, so it runs on any
// machine.
func (c manifestCommand) Run() error {
	o := c.Options
	if o.Image == "" && version != unstamped {
		o.Image = "herald:" + version
	}
	if c.Config != "" {
		parsed, err := c.parse()
		if err != nil {
			return &daemon.ConfigError{Err: err}
		}
		o.Config = parsed
	}
	out, err := manifests.Make(c.Kind, o)
	if err != nil {
		return &daemon.ConfigError{Err: err}
	}
	_, err = os.Stdout.Write(out)
	return err
}

func (c manifestCommand) parse() (*config.Config, error) {
	data, name, err := read(c.Config)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	node := c.Node
	if node == "" {
		node, _ = os.Hostname() // that there is none is reported, if it matters
	}
	return config.Parse(name, data, config.Hostname(node), config.ReadBy(config.ReadFile))
}
