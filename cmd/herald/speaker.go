package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/daemon"
	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/service/kube"
	"github.com/herald-vip/herald/status/admin"
)

type configFlag struct {
	Config string `required:"" placeholder:"FILE" help:"The configuration file."`
	nodeFlag
}

type nodeFlag struct {
	NodeName string `env:"NODE_NAME" placeholder:"NAME" help:"The node's name, which takes precedence over the file and the host's name: in a pod, the name of its Node."`
}

// load reads the configuration in a file; - is standard input.
func load(file, node string) (*config.Config, error) {
	data, name, err := read(file)
	c, err := config.Load(name, config.NodeName(node), config.ReadBy(func(path string) ([]byte, error) {
		if path == name {
			return data, err
		}
		return config.ReadFile(path)
	}))
	if err != nil {
		return nil, &daemon.ConfigError{Err: err}
	}
	return c, nil
}

type runCommand struct {
	configFlag
	logFlags
}

// Validate is called by the parser.
func (c runCommand) Validate() error {
	if c.Config == "-" {
		return errors.New("a configuration on standard input cannot be watched: give --config a file")
	}
	return nil
}

func (c runCommand) Run(ctx context.Context) error {
	signal.Ignore(syscall.SIGPIPE) // the reader of the log may end without taking the VIPs along
	stderr := newWriter(os.Stderr)
	defer stderr.close()
	return daemon.Run(ctx, c.logger(stderr), buildVersion(), c.Config, config.NodeName(c.NodeName))
}

type validateCommand struct {
	File   string `arg:"" optional:"" help:"The configuration file; - is standard input."`
	Config string `placeholder:"FILE" help:"The same, as a flag."`
	nodeFlag
	Show bool `help:"Print the configuration with all defaults filled in."`
}

// Validate is called by the parser.
func (c validateCommand) Validate() error {
	if (c.File == "") == (c.Config == "") {
		return errors.New("want one configuration, as in herald validate herald.yaml")
	}
	return nil
}

func (c validateCommand) Run() error {
	file := cmp.Or(c.File, c.Config)
	parsed, err := load(file, c.NodeName)
	if err != nil {
		return err
	}
	if e := parsed.Election; e != nil {
		if said := election.Exposed(e.KeyFile); said != "" {
			fmt.Fprintln(os.Stderr, "herald: warning:", said)
		}
	}
	var files []string
	for _, h := range parsed.HTTPChecks() {
		files = append(files, h.Files()...)
	}
	slices.Sort(files)
	for _, name := range slices.Compact(files) {
		if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintf(os.Stderr, "herald: note: %s is not there: until it is, the checks that need it fail\n", name)
		}
	}
	if err := usable(parsed); err != nil {
		return &daemon.ConfigError{Err: err}
	}
	if !c.Show {
		fmt.Printf("%s is valid\n", file)
		return nil
	}
	_, err = os.Stdout.Write(parsed.YAML())
	return err
}

// usable returns the errors in files that Herald reads at run time. A missing file is no error, and a file that only
// another user may read is not either.
func usable(c *config.Config) error {
	var errs []error
	for _, h := range c.HTTPChecks() {
		errs = append(errs, health.TryAuthorities(h.CAFile))
	}
	if s := c.Services; s != nil && s.Kubeconfig != "" {
		if _, err := kube.Connect(s.Kubeconfig, "herald"); err != nil {
			errs = append(errs, fmt.Errorf("services.kubeconfig: %w", err))
		}
	}
	return errors.Join(slices.DeleteFunc(errs, func(err error) bool {
		return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)
	})...)
}

type socketFlag struct {
	Socket string `default:"/run/herald/herald.sock" help:"The speaker's admin socket."`
}

type statusCommand struct {
	socketFlag
	outputFlag
	Services bool `help:"List instead every Kubernetes Service that is Herald's, and why this node announces it or not."`
}

func (c statusCommand) Run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	client := admin.NewClient(c.Socket)
	if c.Services {
		services, err := client.Services(ctx)
		if err != nil {
			return err
		}
		return c.write(services, func(w io.Writer) error { return admin.WriteServices(w, services, time.Now()) })
	}
	status, err := client.Status(ctx)
	if err != nil {
		return err
	}
	return c.write(status, func(w io.Writer) error { return status.WriteText(w, time.Now()) })
}

type outputFlag struct {
	Output string `short:"o" enum:"text,json" default:"text" help:"Output format: text or json."`
}

// write prints v as JSON, or its text.
func (f outputFlag) write(v any, text func(io.Writer) error) error {
	if f.Output != "json" {
		return text(os.Stdout)
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// answerTimeout is how long commands wait for a speaker's answer.
const answerTimeout = 5 * time.Second

type drainCommand struct {
	socketFlag
	Reason       string        `default:"herald drain" help:"Shown in status and log."`
	Timeout      time.Duration `default:"30s" help:"How long to wait for the end of the drain, after the deadline."`
	Deadline     time.Duration `help:"How long to wait for connections to VIPs that other members pass on to this node. Another drain without it ends the wait."`
	UntilUndrain bool          `help:"Stay drained over restarts and reboots, until undrain."`
}

// Validate is called by the parser.
func (c drainCommand) Validate() error {
	if c.Deadline < 0 || c.Timeout < 0 {
		return errors.New("--deadline and --timeout cannot be negative")
	}
	return nil
}

func (c drainCommand) Run(ctx context.Context) error {
	client := admin.NewClient(c.Socket)
	before, err := statusSoon(ctx, client)
	if err != nil {
		return err
	}
	limit := c.Deadline + c.Timeout
	waiting, cancel := context.WithTimeout(ctx, limit+answerTimeout)
	defer cancel()
	if err := client.Drain(waiting, c.Reason, c.UntilUndrain, c.Deadline, limit); err != nil {
		return err
	}
	after, err := statusSoon(ctx, client)
	if err != nil {
		return err
	}
	if err := after.WriteDrain(os.Stdout, before); err != nil {
		return err
	}
	if left := after.Left(); len(left) > 0 {
		return fmt.Errorf("the drain goes on, and has left after %v: %s", limit, strings.Join(left, ", "))
	}
	return nil
}

// statusSoon returns the status, or an error after answerTimeout.
func statusSoon(ctx context.Context, client *admin.Client) (admin.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return client.Status(ctx)
}

type undrainCommand struct{ socketFlag }

func (c undrainCommand) Run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return admin.NewClient(c.Socket).Undrain(ctx)
}
