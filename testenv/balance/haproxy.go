package balance

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// haproxyConf is HAProxy's configuration on a worker: what Herald's does there, with
// what makes it find a dead server as fast as it can. The rest are the defaults of
// Debian's package, but for its log, which nobody reads here.
func haproxyConf(worker string, masters []string) string {
	var b strings.Builder
	b.WriteString(`global
	user haproxy
	group haproxy

defaults
	mode tcp
	balance roundrobin
	timeout connect 5s
	timeout client 1h
	timeout server 1h
	retries 3
	option redispatch 1
	default-server check inter 500ms fall 1 rise 1 observe layer4 error-limit 1 on-error mark-down on-marked-down shutdown-sessions
`)
	for _, section := range []struct {
		name, option string
		port         int
	}{{"apiserver", "", ListenPort}, {"spliced", "\toption splice-auto\n", SplicePort}} {
		fmt.Fprintf(&b, "\nlisten %s\n%s\tbind 127.0.0.1:%d\n\tbind %s:%d\n", section.name, section.option, section.port, Address(worker), section.port)
		for _, m := range masters {
			fmt.Fprintf(&b, "\tserver %s %s\n", m, Backend(m))
		}
	}
	return b.String()
}

func (l *Lab) configureHAProxy() error {
	for _, w := range WorkerNames() {
		if err := l.writeHAProxy(w, MasterNames()[:voters]...); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lab) writeHAProxy(worker string, masters ...string) error {
	return os.WriteFile(filepath.Join(l.own(worker), "haproxy.cfg"), []byte(haproxyConf(worker, masters)), 0o644)
}

// ReloadHAProxy has a worker's HAProxy lead to these masters, and waits until it has
// read that: until the first of its processes has a child that it had not.
func (l *Lab) ReloadHAProxy(ctx context.Context, worker string, masters ...string) error {
	if err := l.writeHAProxy(worker, masters...); err != nil {
		return err
	}
	p := l.HAProxy(worker).Daemons()[0]
	before, err := Group(p.Pid())
	if err != nil {
		return err
	}
	// To the first alone: to the others it means something else.
	if err := unix.Kill(p.Pid(), unix.SIGUSR2); err != nil {
		return fmt.Errorf("reload HAProxy: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	return Eventually(ctx, func() error {
		now, err := Group(p.Pid())
		begun := func(pid int) bool { return !slices.Contains(before, pid) }
		if err == nil && !slices.ContainsFunc(now, begun) {
			err = fmt.Errorf("HAProxy on %s has not begun anew", worker)
		}
		return err
	})
}
