package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/internal/probe"
	"github.com/herald-vip/herald/testenv/must"
)

// TestMain lets the test binary be herald: see [herald].
func TestMain(m *testing.M) {
	if os.Getenv("HERALD_TEST_MAIN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// herald makes the command `herald ARGS...`, with the folder of a program that is called so
// in front of PATH.
func herald(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	program, err := os.Executable()
	must.Do(t, err)
	dir := t.TempDir()
	name := filepath.Join(dir, "herald")
	must.Do(t, os.Symlink(program, name))
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "HERALD_TEST_MAIN=1", "PATH="+dir+":"+os.Getenv("PATH"))
	return cmd
}

// run runs a command and returns its output and its exit code.
func run(t *testing.T, cmd *exec.Cmd) (code int, out, stderr string) {
	t.Helper()
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), o.String(), e.String()
}

const goodConfig = `apiVersion: herald.dev/v1alpha1
kind: Speaker
vips: [{name: a, addresses: [10.99.0.10], announce: bgp, checks: [c]}]
checks: [{name: c, tcp: {address: "127.0.0.1:6443"}}]
bgp: {asn: 64512, peers: [{address: 10.0.1.254, asn: 64500}]}
`

func TestCommandLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "herald.yaml")
	must.Do(t, os.WriteFile(file, []byte(goodConfig), 0o600))
	empty := filepath.Join(t.TempDir(), "empty")
	must.Do(t, os.WriteFile(empty, nil, 0o600))
	bad := strings.Replace(goodConfig, "kind", "king", 1)
	absentCA := strings.Replace(goodConfig, `tcp: {address: "127.0.0.1:6443"}`, `http: {url: "https://127.0.0.1:6443/readyz", caFile: /no/ca.crt}`, 1)
	emptyCA := strings.Replace(absentCA, "/no/ca.crt", empty, 1)
	emptyKubeconfig := goodConfig + "services: {kubeconfig: " + empty + "}\n"
	for _, test := range []struct {
		args   string
		input  string
		code   int
		out    string // part of it, or all if it ends with a line feed
		stderr string // all of it
	}{
		{args: "--version", out: "herald " + buildVersion() + "\n"},
		{args: "version", out: "herald " + buildVersion() + "\n"},
		{args: "help", out: "Commands:"},
		{args: "help manifest", out: "Usage: herald manifest <kind>"},
		{args: "help migrate kube-vip", out: "Usage: herald migrate kube-vip <file>"},
		{args: "help nothing", code: exitUsage, stderr: "herald: unexpected argument nothing: see herald --help\n"},
		{args: "manifest systemd --no-such-flag", code: exitUsage, stderr: "herald: unknown flag --no-such-flag: see herald manifest --help\n"},
		{args: "completion zsh", out: "bashcompinit\ncomplete -o"},
		{args: "completion fish", out: "complete -c herald -f"},
		{args: "run", code: exitUsage, stderr: "herald: missing flags: --config=FILE: see herald run --help\n"},
		{args: "drain --deadline=-5m", code: exitUsage, stderr: "herald: drain: --deadline and --timeout cannot be negative: see herald drain --help\n"},
		{args: "drain --timeout=-1s", code: exitUsage, stderr: "herald: drain: --deadline and --timeout cannot be negative: see herald drain --help\n"},
		{args: "run --config -", code: exitUsage, stderr: "herald: run: a configuration on standard input cannot be watched: give --config a file: see herald run --help\n"},

		{args: "validate FILE", out: file + " is valid\n"},
		{args: "validate --config FILE", out: file + " is valid\n"},
		{args: "validate", code: exitUsage, stderr: "herald: validate: want one configuration, as in herald validate herald.yaml: see herald validate --help\n"},
		{args: "validate FILE --config FILE", code: exitUsage, stderr: "herald: validate: want one configuration, as in herald validate herald.yaml: see herald validate --help\n"},
		{args: "validate -", input: goodConfig, out: "- is valid\n"},
		{args: "validate --config -", input: bad, code: exitUsage, stderr: "stdin:2:1: king: unknown field, did you mean kind?\n"},
		{args: "validate -", input: absentCA, out: "- is valid\n",
			stderr: "herald: note: /no/ca.crt is not there: until it is, the checks that need it fail\n"},
		{args: "validate -", input: emptyCA, code: exitUsage, stderr: "herald: caFile " + empty + ": no PEM certificate in it\n"},
		{args: "validate -", input: emptyKubeconfig, code: exitUsage, stderr: "herald: services.kubeconfig: connect to the Kubernetes API: invalid configuration: no configuration has been provided, try setting KUBERNETES_MASTER environment variable\n"},
		{args: "manifest static-pod --config -", input: goodConfig, out: "kind: Pod"},
		{args: "manifest static-pod --config -", input: bad, code: exitUsage, stderr: "stdin:2:1: king: unknown field, did you mean kind?\n"},
		{args: "doctor --config -", input: bad, code: exitUsage, stderr: "stdin:2:1: king: unknown field, did you mean kind?\n"},
	} {
		t.Run(test.args, func(t *testing.T) {
			cmd := herald(t, strings.Fields(strings.ReplaceAll(test.args, "FILE", file))...)
			cmd.Stdin = strings.NewReader(test.input)
			code, out, stderr := run(t, cmd)
			as := strings.Contains
			if test.out == "" || strings.HasSuffix(test.out, "\n") {
				as = func(a, b string) bool { return a == b }
			}
			if code != test.code || !as(out, test.out) || stderr != test.stderr {
				t.Errorf("exit code %d, want %d; standard output:\n%s\nstandard error:\n%s\nwant\n%s", code, test.code, out, stderr, test.stderr)
			}
		})
	}
}

// Words completed by Tab in bash make the intended command.
func TestCompletionInBash(t *testing.T) {
	bash := exec.Command("bash", "--noprofile", "--norc", "-i")
	bash.Env = herald(t).Env
	bash.Dir = t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(bash.Dir, "my.yaml"), []byte(goodConfig), 0o600))
	bash.Stdin = strings.NewReader("source <(herald completion bash)\n" +
		"herald manif\tst\t --im\tmine:1\n" + // an argument and a flag
		"herald valid\t --con\tmy.\t\n" + // a file
		"herald status -o j\t--socket=/none\n" + // a value of a flag
		"exit\n")
	_, out, stderr := run(t, bash)
	for _, want := range []string{"image: mine:1\n", "my.yaml is valid\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("got no %q of\n%s%s", want, out, stderr)
		}
	}
	if !strings.Contains(stderr, "herald status -o json --socket") {
		t.Errorf("-o j was not completed:\n%s", stderr)
	}
}

// A manifest names the image that `make image` makes of the same version.
func TestManifestNamesTheImage(t *testing.T) {
	makeImage, err := exec.Command("make", "--no-print-directory", "-n", "-C", "../..", "image", "VERSION=v1.2.3", "COMMIT=none", "SOURCE_DATE_EPOCH=0").Output()
	must.Do(t, err)
	made := regexp.MustCompile(`--reference (\S+)`).FindSubmatch(makeImage)
	if made == nil {
		t.Fatalf("make image names none:\n%s", makeImage)
	}
	defer func(before string) { version = before }(version)
	version = "v1.2.3"
	out := captured(t, &os.Stdout, func() { err = manifestCommand{Kind: "static-pod"}.Run() })
	if want := "image: " + string(made[1]) + "\n"; err != nil || !strings.Contains(out, want) {
		t.Errorf("the pod has no %q: %v\n%s", want, err, out)
	}
}

// Logging does not wait for a reader, and counts the dropped lines.
func TestWriterNeverWaits(t *testing.T) {
	read, write := io.Pipe()
	w := newWriter(write)
	const lines = queued + 100
	for i := range lines { // hangs here if Write waits
		fmt.Fprintf(w, "line %d\n", i)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.close()
		write.Close()
	}()
	seen, told := 0, false
	for text := bufio.NewScanner(read); text.Scan(); {
		if strings.HasPrefix(text.Text(), "line ") {
			seen++
		}
		told = told || strings.HasSuffix(text.Text(), "log lines were dropped: nobody read them")
	}
	<-done
	if seen < queued || seen >= lines || !told {
		t.Errorf("%d of %d lines written, told of the rest: %t", seen, lines, told)
	}
}

func TestWriterEndsWithAReaderThatIsStuck(t *testing.T) {
	_, write := io.Pipe()
	w := newWriter(write)
	fmt.Fprintln(w, "line")
	w.close()
	_ = write.Close()
	<-w.written
}

// The exit code tells outages, and attempts that this machine could not make, from
// a target that always answers.
func TestProbeExit(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	target := listener.Addr().String()
	run := func(source netip.Addr) (err error) {
		c := probeCommand{Output: "text", Prober: probe.Prober{
			Target: target, Interval: time.Millisecond, Timeout: 10 * time.Second, Duration: 500 * time.Millisecond, Source: source,
		}}
		captured(t, &os.Stdout, func() { err = c.Run(t.Context()) })
		return err
	}
	if err := run(netip.Addr{}); err != nil {
		t.Errorf("the target answers: %v", err)
	}
	if err := run(netip.MustParseAddr("192.0.2.1")); !errors.Is(err, errNoAttempt) {
		t.Errorf("from an address of another machine: got %v, want %v", err, errNoAttempt)
	}
	listener.Close()
	if err := run(netip.Addr{}); !errors.Is(err, errOutage) {
		t.Errorf("no server: got %v, want %v", err, errOutage)
	}
}
