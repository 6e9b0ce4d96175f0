package main

import (
	"fmt"
	"os"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/daemon"
	"github.com/herald-vip/herald/manifests"
)

type manifestCommand struct {
	Kind   manifests.Kind `arg:"" enum:"static-pod,daemonset,systemd" help:"What to print: static-pod, daemonset or systemd."`
	Config string         `placeholder:"FILE" help:"The configuration to fit: its files, addresses and rights. Default: what fits any with all files in one folder."`
	Node   string         `placeholder:"NAME" help:"The node it is for, if the configuration has no nodeName. Default: this host."`
	Path   string         `placeholder:"FILE" help:"Where the configuration is on the node. Default: /etc/herald/herald.yaml."`
	Image  string         `help:"The container image. Default: herald:dev."`
	Binary string         `placeholder:"FILE" help:"Where herald is on the node, for systemd. Default: /usr/local/bin/herald."`
}

// Run prints a manifest. It reads the configuration and nothing that this names,
// so that it can be run anywhere.
func (c manifestCommand) Run() error {
	o := manifests.Options{File: c.Path, Image: c.Image, Binary: c.Binary}
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
	data, err := os.ReadFile(c.Config)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	node := c.Node
	if node == "" {
		if node, err = os.Hostname(); err != nil {
			node = "" // reported, if it matters
		}
	}
	return config.Parse(c.Config, data, config.Hostname(node))
}
