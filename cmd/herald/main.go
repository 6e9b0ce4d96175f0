// Herald announces virtual IPs for Kubernetes. See README.md.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/alecthomas/kong"
	kongcompletion "github.com/jotaen/kong-completion"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/daemon"
	"github.com/herald-vip/herald/manifests"
	"github.com/herald-vip/herald/tenant"
)

// version is set by the build.
var version = unstamped

const unstamped = "devel"

// Exit codes.
const (
	exitFailed = 1
	exitUsage  = 2 // wrong usage or configuration
	exitByHand = 3 // converted in part: the rest needs an administrator
)

type commands struct {
	Run      runCommand      `cmd:"" help:"Run the speaker in the foreground."`
	Validate validateCommand `cmd:"" help:"Check a configuration file and list all of its mistakes."`
	Status   statusCommand   `cmd:"" help:"Show what the running speaker announces, and why or why not."`
	Doctor   doctorCommand   `cmd:"" help:"Examine this node: whether links, ports, rights, routers, members, servers and certificates let its VIPs work."`
	Drain    drainCommand    `cmd:"" help:"Withdraw all VIPs of this node with graceful shutdown, and wait for the end."`
	Undrain  undrainCommand  `cmd:"" help:"Announce again after a drain."`
	Member   memberCommand   `cmd:"" help:"List the members of the election, or remove a member that is gone."`
	Probe    probeCommand    `cmd:"" help:"Connect to an address every few milliseconds and report outages."`
	Keygen   keygenCommand   `cmd:"" help:"Make a key for an election, which all members share."`
	Migrate  migrateCommand  `cmd:"" help:"Convert the configuration of kube-vip, keepalived, MetalLB, ExaBGP or anycast-healthchecker."`
	Manifest manifestCommand `cmd:"" help:"Print a manifest that runs Herald: as a static pod, a DaemonSet or a systemd unit, or as an agent or a manager of tenants."`
	Manager  managerCommand  `cmd:"" help:"Serve Services of other clusters (tenants) in this one."`
	Agent    agentCommand    `cmd:"" help:"Serve Services of this cluster from another one."`
	Tenant   tenantCommand   `cmd:"" help:"Give a tenant access to the cluster that serves it."`
	Version  versionCommand  `cmd:"" help:"Print the version."`

	Completion  completionCommand `cmd:"" help:"Print the script by which a shell completes commands and flags: source <(herald completion bash)."`
	Help        helpCommand       `cmd:"" help:"Show all commands, or the flags of one."`
	VersionFlag kong.VersionFlag  `name:"version" help:"Print the version."`
}

func main() {
	parser := newParser()
	if filepath.Base(os.Args[0]) == pluginName {
		parser = newPluginParser()
	}
	kongcompletion.Register(parser) // ends the process if it is a shell that asks
	command, err := parser.Parse(os.Args[1:])
	if err == nil {
		err = command.Run()
	}
	if err != nil {
		os.Exit(report(err))
	}
}

func newParser() *kong.Kong {
	return kong.Must(new(commands),
		kong.Name("herald"),
		kong.Description("Announces virtual IPs for Kubernetes while what they stand for is healthy."),
		kong.Vars{"version": "herald " + buildVersion(), "class": tenant.Class, "secret": manifests.LoadBalancerSecret},
		kong.BindTo(context.Background(), (*context.Context)(nil)),
	)
}

// report prints err and returns the exit code for it.
func report(err error) int {
	var mistakes config.Errors
	var unusable *daemon.ConfigError
	var usage *kong.ParseError
	switch {
	case errors.As(err, &usage):
		command := "herald"
		if node := usage.Context.Selected(); node != nil {
			command = node.FullPath()
		}
		fmt.Fprintf(os.Stderr, "herald: %v: see %s --help\n", err, command)
		return exitUsage
	case errors.As(err, &mistakes):
		// Each mistake is a line that begins with file:line:column, for editors to follow.
		fmt.Fprintln(os.Stderr, mistakes)
		return exitUsage
	case errors.As(err, &unusable):
		fmt.Fprintln(os.Stderr, "herald:", err)
		return exitUsage
	}
	fmt.Fprintln(os.Stderr, "herald:", err)
	if errors.Is(err, errByHand) {
		return exitByHand
	}
	return exitFailed
}

type helpCommand struct {
	Command []string `arg:"" optional:"" help:"The command."`
}

// Run implements `herald COMMAND --help`.
func (c helpCommand) Run(parser *kong.Kong) error {
	_, err := parser.Parse(append(c.Command, "--help"))
	return err
}

type versionCommand struct{}

func (versionCommand) Run() error {
	fmt.Println("herald", buildVersion())
	return nil
}

// buildVersion returns the stamped version, or the module's after a plain `go install`.
func buildVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && version == unstamped && info.Main.Version != "" {
		return info.Main.Version
	}
	return version
}

// logFlags are shared by the commands that log.
type logFlags struct {
	LogFormat string     `enum:"text,json" default:"text" help:"Format of the log on stderr: text or json."`
	LogLevel  slog.Level `default:"info" help:"The lowest level to log: debug, info, warn or error."`
}

func (f logFlags) logger(dst io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: f.LogLevel}
	if f.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(dst, options))
	}
	return slog.New(slog.NewTextHandler(dst, options))
}

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"The shell: bash, zsh or fish."`
}

// Run prints the shell commands for completion. The shell then runs herald with COMP_LINE set for candidates, and
// completes file names where there are none.
func (c completionCommand) Run() error {
	const bash = "complete -o default -o bashdefault -C herald herald\n"
	fmt.Print(map[string]string{
		"bash": bash,
		"zsh":  "autoload -U +X bashcompinit && bashcompinit\n" + bash,
		"fish": `function __herald_complete
    set -lx COMP_LINE (commandline -cp)
    herald
end
complete -c herald -f -a '(__herald_complete)'
complete -c herald -n 'test -z "$(__herald_complete)"' -F
`,
	}[c.Shell])
	return nil
}

const (
	// queued is the size of the queue in lines.
	queued = 4096
	// parting is how long the end of the process waits for the queue.
	parting = time.Second
)

// writer writes in the background, and drops lines when its queue is full: logging never blocks. A stopped terminal, or
// a pipe without a reader, must not keep a VIP announced.
type writer struct {
	lines   chan []byte // nil is the last
	dropped atomic.Uint64
	written chan struct{} // closed when all is
}

func newWriter(dst io.Writer) *writer {
	w := &writer{lines: make(chan []byte, queued), written: make(chan struct{})}
	go w.run(dst)
	return w
}

func (w *writer) run(dst io.Writer) {
	defer close(w.written)
	for line := range w.lines {
		if n := w.dropped.Swap(0); n > 0 {
			fmt.Fprintf(dst, "%d log lines were dropped: nobody read them\n", n)
		}
		if line == nil {
			return
		}
		_, _ = dst.Write(line) // there is nowhere to tell of a failure
	}
}

// Write implements [io.Writer]. It never fails.
func (w *writer) Write(line []byte) (int, error) {
	select {
	case w.lines <- bytes.Clone(line):
	default:
		w.dropped.Add(1)
	}
	return len(line), nil
}

// close waits a moment for the queue to empty. Later lines are lost.
func (w *writer) close() {
	timeout := time.After(parting)
	select {
	case w.lines <- nil:
	case <-timeout:
		return
	}
	select {
	case <-w.written:
	case <-timeout:
	}
}
