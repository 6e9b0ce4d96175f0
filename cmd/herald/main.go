// Herald announces virtual IPs for Kubernetes. See README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/alecthomas/kong"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/daemon"
)

// version is set by the build.
var version = "devel"

// Exit codes.
const (
	exitFailed = 1
	exitUsage  = 2 // wrong usage or configuration
	exitByHand = 3 // converted, but for what has to be done by hand
)

type commands struct {
	Run      runCommand      `cmd:"" help:"Run the speaker in the foreground."`
	Validate validateCommand `cmd:"" help:"Check a configuration file and list everything wrong with it."`
	Status   statusCommand   `cmd:"" help:"Show what the running speaker announces, and why or why not."`
	Doctor   doctorCommand   `cmd:"" help:"Examine this node: whether links, ports, rights, routers, members, servers and certificates let its VIPs work."`
	Drain    drainCommand    `cmd:"" help:"Withdraw all VIPs of this node in good order, and wait until it is done."`
	Undrain  undrainCommand  `cmd:"" help:"Announce again after a drain."`
	Probe    probeCommand    `cmd:"" help:"Connect to an address every few milliseconds and report outages."`
	Keygen   keygenCommand   `cmd:"" help:"Make a key for the members of an election, the same for all of them."`
	Migrate  migrateCommand  `cmd:"" help:"Convert the configuration of kube-vip, keepalived or MetalLB."`
	Manifest manifestCommand `cmd:"" help:"Print how to run Herald: as a static pod, a DaemonSet or a systemd unit."`
	Version  versionCommand  `cmd:"" help:"Print the version."`
}

func main() {
	if err := parse(os.Args[1:]).Run(); err != nil {
		os.Exit(report(err))
	}
}

// parse returns the command that args ask for. On a mistake it prints the usage to
// standard error, since standard output may become a file, and ends the process.
func parse(args []string, options ...kong.Option) *kong.Context {
	var cli commands
	parser := kong.Must(&cli, append([]kong.Option{
		kong.Name("herald"),
		kong.Description("Announces virtual IPs for Kubernetes while what they stand for is healthy."),
		kong.UsageOnError(),
		kong.BindTo(context.Background(), (*context.Context)(nil)),
		kong.Exit(func(code int) {
			if code != 0 {
				code = exitUsage
			}
			os.Exit(code)
		}),
	}, options...)...)
	command, err := parser.Parse(args)
	parser.Stdout = parser.Stderr
	parser.FatalIfErrorf(err)
	return command
}

// report prints err and returns the exit code for it.
func report(err error) int {
	var mistakes config.Errors
	var unusable *daemon.ConfigError
	switch {
	case errors.As(err, &mistakes):
		// One line each, which begins with file:line:column for editors to follow.
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

type versionCommand struct{}

func (versionCommand) Run() error {
	fmt.Println("herald", buildVersion())
	return nil
}

// buildVersion is the stamped version, or for a plain `go install` the module's.
func buildVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && version == "devel" && info.Main.Version != "" {
		return info.Main.Version
	}
	return version
}

// logFlags are shared by the commands that log.
type logFlags struct {
	LogFormat string     `enum:"text,json" default:"text" help:"How to log to stderr: text or json."`
	LogLevel  slog.Level `default:"info" help:"The least level to log: debug, info, warn or error."`
}

func (f logFlags) logger(to io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: f.LogLevel}
	if f.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(to, options))
	}
	return slog.New(slog.NewTextHandler(to, options))
}
