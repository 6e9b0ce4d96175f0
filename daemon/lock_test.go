package daemon_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/wait"
)

// A second herald detects the first before it changes anything, even if the socket is gone.
func TestTwoHeraldsDoNotShareANode(t *testing.T) {
	for name, tt := range map[string]struct {
		socket string // of the second
		remove bool   // that of the first
	}{
		"one socket":         {socket: "herald.sock"},
		"sockets of its own": {socket: "other.sock"},
		"socket removed":     {socket: "herald.sock", remove: true},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.announcing()
			if tt.remove {
				remove(t, filepath.Join(n.dir, "herald.sock"))
			}
			other := filepath.Join(n.dir, "other.yaml")
			n.writeFile(other, strings.NewReplacer(`[10.99.0.10, "fd00:99::10"]`, "[10.99.0.11]", "DIR/herald.sock", n.dir+"/"+tt.socket, "9474", "9475", "DIR", n.dir).Replace(config))
			second := n.startWith(other)
			if code := second.wait(t); code != 1 || !strings.Contains(second.log.String(), "herald: another herald runs on this node (process ") {
				t.Errorf("exit code %d, log %s", code, second.log)
			}
			n.wantVIPs(both()...)
		})
	}
}

// Any user of the node can take the name that is the lock, which must not keep herald from starting.
func TestLockOfAnotherUserIsNone(t *testing.T) {
	const nobody = 65534
	n := newNode(t)
	n.in(func() error { // on a thread that ends with its rights
		if _, _, err := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); err != 0 {
			return err
		}
		l, err := net.Listen("unix", "@herald")
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	})
	h := n.announcing()
	if !strings.Contains(h.log.String(), "user=65534") {
		t.Error("the log does not say whose the lock is")
	}
}

// A removed socket is created again, with its folder. A file in its place stays.
func TestSocketComesBack(t *testing.T) {
	n := newNode(t)
	run, elsewhere := filepath.Join(n.dir, "run"), t.TempDir()
	socket := filepath.Join(run, "herald.sock")
	n.write(strings.Replace(config, "DIR/herald.sock", socket, 1))
	h := n.announcing()
	answers := func() bool {
		_, err := admin.NewClient(socket).Status(t.Context())
		return err == nil
	}
	remove(t, socket)
	wait.Until(t, "the socket is there again", answers)
	remove(t, run)
	wait.Until(t, "the folder is there again", answers)
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket mode %v, %v; want 0600", info.Mode(), err)
	}
	must.Do(t, os.Rename(socket, elsewhere+"/herald.sock"))
	wait.Until(t, "a socket that was moved is made anew", answers)

	remove(t, socket)
	n.writeFile(socket, "precious")
	wait.Until(t, "the log says why there is none", func() bool { return strings.Contains(h.log.String(), socket+" is not a socket") })
	h.stop(t)
	if got, err := os.ReadFile(socket); err != nil || string(got) != "precious" {
		t.Errorf("got %q, %v", got, err)
	}
}
