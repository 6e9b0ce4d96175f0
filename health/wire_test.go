package health

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
)

// After an answer that arrives with the deadline, the connection is unusable: its deadline has passed.
func TestDuringTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer server.Close()
		w := newWire(client)
		ctx, cancel := context.WithCancel(t.Context())
		err := w.during(ctx, func() error {
			cancel()
			synctest.Wait() // for the deadline to be set
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		if _, err := client.Write(nil); errors.Is(err, os.ErrDeadlineExceeded) || err == nil {
			t.Errorf("the connection is left open: %v", err)
		}
	})
}

func TestCloseWaitsForTheWatch(t *testing.T) {
	client, server := net.Pipe()
	defer server.Close()
	w := newWire(client)
	w.watch(discardNothing)
	w.close()
	select {
	case <-w.ended:
	default:
		t.Error("the watch goes on")
	}
}

func TestResume(t *testing.T) {
	for _, tt := range []struct {
		name string
		peer func(net.Conn)
		want error
	}{
		{"quiet", func(net.Conn) {}, nil},
		{"spoke", func(c net.Conn) { _, _ = c.Write([]byte("x")) }, errUnasked},
		{"left", func(c net.Conn) { _ = c.Close() }, io.EOF},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, server := net.Pipe()
				defer server.Close()
				w := newWire(client)
				defer w.close()
				w.watch(discardNothing)
				go tt.peer(server)
				synctest.Wait()
				err := w.resume()
				if !errors.Is(err, tt.want) {
					t.Fatalf("resume: %v, want %v", err, tt.want)
				}
				if err != nil {
					return
				}
				go func() { _, _ = server.Write([]byte("answer")) }()
				if b, err := w.r.Peek(6); string(b) != "answer" {
					t.Errorf("after resume: %q, %v", b, err)
				}
			})
		})
	}
}
