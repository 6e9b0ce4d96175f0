//go:build containerlab

// Package containerlab tests Herald's image under a real Docker engine, and the
// topologies under the real containerlab. `make containerlab` installs their needs.
package containerlab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// The topologies' default images.
const (
	heraldImage  = "herald:dev"
	testenvImage = "herald-testenv:dev"
)

// frrImage returns the image of FRR, from the same variable as in the topologies.
func frrImage() string { return os.Getenv("FRR_IMAGE") }

// soon bounds the wait for quick events, on a busy machine.
const soon = time.Minute

// command runs a program to its end and returns its output.
func command(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%s %s: %w:\n%s%s", name, strings.Join(args, " "), err, out, exit.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}

// must runs a program that must succeed.
func must(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := command(t.Context(), name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// cleanUp runs a program after the test; it must succeed.
func cleanUp(t *testing.T, name string, args ...string) {
	if _, err := command(context.Background(), name, args...); err != nil {
		t.Error(err)
	}
}

// start starts a container with these arguments of `docker run`. It is removed after
// the test; if the test failed, its log is shown.
func start(t *testing.T, name string, args ...string) {
	t.Helper()
	must(t, "docker", append([]string{"run", "--detach", "--name", name}, args...)...)
	t.Cleanup(func() {
		if t.Failed() {
			log, err := exec.CommandContext(context.Background(), "docker", "logs", "--tail", "40", name).CombinedOutput()
			t.Logf("log of %s (%v):\n%s", name, err, log)
		}
		cleanUp(t, "docker", "rm", "--force", name)
	})
}

// served returns how many of a second's connections from a container's network each
// server of a VIP answered. It returns an error if a connection failed.
func served(t *testing.T, container, vip string) (map[string]int, error) {
	t.Helper()
	out, err := command(t.Context(), "docker", "run", "--rm", "--network", "container:"+container, heraldImage,
		"probe", "--identify", "--duration", "1s", "--timeout", "1s", "--output", "json", vip)
	var report struct {
		Total, Failed int
		Servers       map[string]int
	}
	// It exits with 1, and reports it, if a connection failed.
	if e := json.Unmarshal([]byte(out), &report); e != nil {
		return nil, errors.Join(err, e)
	}
	if report.Failed > 0 || report.Total == 0 {
		return nil, fmt.Errorf("%d of %d connections to %s failed", report.Failed, report.Total, vip)
	}
	return report.Servers, nil
}

// eventually waits until try succeeds. On a timeout the test ends with the last error.
func eventually(t *testing.T, try func() error) {
	t.Helper()
	deadline := time.Now().Add(soon)
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %v", soon, err)
		}
		<-ticker.C
	}
}

// writeFile writes a file into a folder of the test and returns its path.
func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := t.TempDir() + "/" + name
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}
