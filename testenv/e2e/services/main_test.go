//go:build e2e

package services

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/herald-vip/herald/service/assign"
	"github.com/herald-vip/herald/service/kube"
)

// runAssigner runs a process that gives Services their addresses.
func runAssigner(kubeconfig string) int {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	cluster, err := kube.Connect(kubeconfig, "herald-test")
	if err != nil {
		log.Error("cannot start", "reason", err)
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	assign.New(log, cluster, assignOptions(os.Getenv(assignerName))).Run(ctx)
	return 0
}

func TestMain(m *testing.M) {
	if kubeconfig := os.Getenv(assignerVariable); kubeconfig != "" {
		os.Exit(runAssigner(kubeconfig)) // this is a process that a test has started
	}
	os.Exit(m.Run())
}
