package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/herald-vip/herald/admin"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/daemon"
	"github.com/herald-vip/herald/election"
)

type configFlag struct {
	Config   string `required:"" placeholder:"FILE" help:"The configuration file."`
	NodeName string `env:"NODE_NAME" placeholder:"NAME" help:"The node's name, whatever the file and the host say: in a pod, the name of its Node."`
}

type runCommand struct {
	configFlag
	logFlags
}

func (c runCommand) Run(ctx context.Context) error {
	stderr := newWriter(os.Stderr)
	defer stderr.close()
	return daemon.Run(ctx, c.logger(stderr), buildVersion(), c.Config, config.NodeName(c.NodeName))
}

type validateCommand struct {
	configFlag
	Show bool `help:"Print the configuration with all defaults filled in."`
}

func (c validateCommand) Run() error {
	parsed, err := config.Load(c.Config, config.NodeName(c.NodeName))
	if err != nil {
		return &daemon.ConfigError{Err: err}
	}
	if e := parsed.Election; e != nil {
		if said := election.Exposed(e.KeyFile); said != "" {
			fmt.Fprintln(os.Stderr, "herald: warning:", said)
		}
	}
	if !c.Show {
		fmt.Printf("%s is valid\n", c.Config)
		return nil
	}
	effective, err := parsed.YAML()
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(effective)
	return err
}

type socketFlag struct {
	Socket string `default:"/run/herald/herald.sock" help:"The speaker's admin socket."`
}

type statusCommand struct {
	socketFlag
	Output   string `short:"o" enum:"text,json" default:"text" help:"Output format: text or json."`
	Services bool   `help:"List every Kubernetes Service that is Herald's, and why this node announces it or not, instead."`
}

func (c statusCommand) Run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	client := admin.NewClient(c.Socket)
	if c.Services {
		return c.services(ctx, client)
	}
	status, err := client.Status(ctx)
	if err != nil {
		return err
	}
	if c.Output == "json" {
		return writeJSON(status)
	}
	return status.WriteText(os.Stdout, time.Now())
}

func (c statusCommand) services(ctx context.Context, client *admin.Client) error {
	services, err := client.Services(ctx)
	if err != nil {
		return err
	}
	if c.Output == "json" {
		return writeJSON(services)
	}
	return admin.WriteServices(os.Stdout, services, time.Now())
}

func writeJSON(v any) error {
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

type drainCommand struct {
	socketFlag
	Reason  string        `default:"herald drain" help:"Shown in status and log."`
	Timeout time.Duration `default:"30s" help:"How long to wait for the end of the drain."`
}

func (c drainCommand) Run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	return admin.NewClient(c.Socket).Drain(ctx, c.Reason)
}

type undrainCommand struct{ socketFlag }

func (c undrainCommand) Run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return admin.NewClient(c.Socket).Undrain(ctx)
}
