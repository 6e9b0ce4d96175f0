package proxy_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/wait"
)

// TestHalfClose lets either side close first: it still receives all from the other.
func TestHalfClose(t *testing.T) {
	for _, order := range []string{"client first", "backend first"} {
		t.Run(order, func(t *testing.T) {
			first, second := through(t)
			if order == "backend first" {
				first, second = second, first
			}
			say(t, first, "question")
			must.Do(t, first.CloseWrite())
			receive(t, second, "question")
			say(t, second, "answer")
			_ = second.Close()
			receive(t, first, "answer")
		})
	}
}

// TestReset resets one side: the other side is reset too.
func TestReset(t *testing.T) {
	for _, side := range []string{"client", "backend"} {
		t.Run(side, func(t *testing.T) {
			first, second := through(t)
			if side == "backend" {
				first, second = second, first
			}
			say(t, first, "x")
			must.Get[int](t)(io.ReadFull(second, make([]byte, 1)))
			_ = first.SetLinger(0)
			_ = first.Close()
			if _, err := second.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("error %v of the other side, want a reset", err)
			}
		})
	}
}

// TestEarlyAnswer closes the server's side while the client still writes: the answer arrives.
func TestEarlyAnswer(t *testing.T) {
	client, backend := through(t)
	say(t, client, "a long story")
	must.Get[int](t)(io.ReadFull(backend, make([]byte, 1)))
	answer := strings.Repeat("too long ", 1000)
	say(t, backend, answer)
	_ = backend.CloseWrite()
	receive(t, client, answer)
}

// TestBulk copies 200 MB in both directions at once, through pipes in the kernel.
func TestBulk(t *testing.T) {
	const size = 200 << 20
	wait.Until(t, "pipes of earlier tests are collected", func() bool {
		runtime.GC()
		return pipes(t) == 0
	})
	client, backend := through(t)
	block := make([]byte, 1<<20)
	rand.NewChaCha8([32]byte{1}).Read(block)

	var moving sync.WaitGroup
	sums := make(map[*net.TCPConn][]byte)
	var mu sync.Mutex
	var spliced atomic.Bool
	for _, conn := range []*net.TCPConn{client, backend} {
		moving.Go(func() {
			for i := range size / len(block) {
				if i == size/len(block)/2 && pipes(t) > 0 {
					spliced.Store(true)
				}
				if _, err := conn.Write(block); err != nil {
					t.Error(err)
					return
				}
			}
			_ = conn.CloseWrite()
		})
		moving.Go(func() {
			sum := sha256.New()
			if n, err := io.Copy(sum, conn); n != size || err != nil {
				t.Errorf("%d bytes arrived (%v), want %d", n, err, size)
			}
			mu.Lock()
			defer mu.Unlock()
			sums[conn] = sum.Sum(nil)
		})
	}
	moving.Wait()
	want := sha256.New()
	for range size / len(block) {
		want.Write(block)
	}
	for _, got := range sums {
		if !bytes.Equal(got, want.Sum(nil)) {
			t.Error("the bytes differ")
		}
	}
	if !spliced.Load() {
		t.Error("no pipe was open: the bytes were copied through this process")
	}
}

// pipes counts the pipes of this process without inherited ones.
func pipes(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Error(err)
	}
	n := 0
	for _, e := range entries {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil || !strings.HasPrefix(target, "pipe:") {
			continue // closed meanwhile, or no pipe
		}
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			t.Error(err)
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC != 0 {
			n++
		}
	}
	return n
}
