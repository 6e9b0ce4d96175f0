package lab_test

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/herald-vip/herald/testenv/clab"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/wait"
)

// TestMain lets the tests run this binary as a program too: as a server in a node, or
// as the owner of a lab that is killed.
func TestMain(m *testing.M) {
	role := ""
	if len(os.Args) > 1 {
		role = os.Args[1]
	}
	var err error
	switch role {
	case "serve":
		err = serve(os.Args[2])
	case "own":
		err = own(os.Args[2])
	default:
		goleak.VerifyTestMain(m)
	}
	fmt.Fprintln(os.Stderr, err) // these roles do not end by themselves
	os.Exit(1)
}

// serve echoes the data of TCP connections.
func serve(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Println("serving")
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			_, _ = io.Copy(c, c)
			c.Close()
		}()
	}
}

// images maps the images in the topologies of the tests and the project.
func images(t *testing.T) map[string]lab.Image {
	t.Helper()
	self := lab.Binary(must.Get[string](t)(os.Executable()))
	return map[string]lab.Image{"test": self, "quay.io/frrouting/frr": self, "herald": self, "herald-testenv": self}
}

// start runs a topology until the end of the test.
func start(t *testing.T, topology *clab.Topology, opts lab.Options) *lab.Lab {
	t.Helper()
	if opts.Images == nil {
		opts.Images = images(t)
	}
	l := must.Get[*lab.Lab](t)(lab.Start(t.Context(), slog.New(slog.DiscardHandler), topology, opts))
	t.Cleanup(func() { must.Do(t, l.Close()) })
	return l
}

// load reads one of the project's topologies.
func load(t *testing.T, name string) *clab.Topology {
	t.Helper()
	return must.Get[*clab.Topology](t)(clab.Load(filepath.Join("../topologies", name)))
}

// parse reads a topology from the test itself.
func parse(t *testing.T, text string) *clab.Topology {
	t.Helper()
	return must.Get[*clab.Topology](t)(clab.Parse(filepath.Join(t.TempDir(), "test.clab.yml"), []byte(text), os.LookupEnv))
}

// run runs a shell command in a node and returns its output.
func run(t *testing.T, n *lab.Node, command string) string {
	t.Helper()
	return must.Get[string](t)(n.Run(t.Context(), "sh", "-c", command))
}

// talk is a pair of UDP sockets in two nodes. Datagrams from one to the other arrive
// in order, so a datagram is known to be lost when a later one arrives.
type talk struct {
	t        *testing.T
	from     *net.UDPConn
	receiver *net.UDPConn

	words int // number of datagrams sent by works
}

// newTalk opens the sockets: from an unbound one in a to an address of b.
func newTalk(t *testing.T, a, b *lab.Node, address string) *talk {
	t.Helper()
	at := &net.UDPAddr{IP: net.ParseIP(address)}
	k := &talk{t: t}
	must.Do(t, b.Do(func() (err error) { k.receiver, err = net.ListenUDP("udp", at); return err }))
	t.Cleanup(func() { k.receiver.Close() })
	must.Do(t, a.Do(func() (err error) {
		k.from, err = net.DialUDP("udp", nil, k.receiver.LocalAddr().(*net.UDPAddr))
		return err
	}))
	t.Cleanup(func() { k.from.Close() })
	return k
}

func (k *talk) say(word string) {
	k.t.Helper()
	must.Get[int](k.t)(k.from.Write([]byte(word)))
}

func (k *talk) hear() string {
	k.t.Helper()
	for {
		if word := must.Get[string](k.t)(k.listen(30 * time.Second)); !repeated(word) {
			return word
		}
	}
}

func (k *talk) listen(wait time.Duration) (string, error) {
	k.t.Helper()
	must.Do(k.t, k.receiver.SetReadDeadline(time.Now().Add(wait)))
	buf := make([]byte, 64)
	n, err := k.receiver.Read(buf)
	return string(buf[:n]), err
}

// recovers waits until datagrams arrive again after the carrier is back.
func (k *talk) recovers() {
	k.t.Helper()
	wait.Until(k.t, "datagrams arrive again", func() bool {
		_, err := k.from.Write([]byte("anyone?"))
		if err == nil {
			_, err = k.listen(20 * time.Millisecond)
		}
		return err == nil
	})
}

// works checks that a datagram arrives, but no datagram sent by say before. It repeats
// the datagram until it arrives: all namespaces share the kernel's neighbour table,
// and when another test fills that, a datagram is lost.
func (k *talk) works() {
	k.t.Helper()
	k.words++
	word := fmt.Sprintf("hello %d", k.words)
	wait.Until(k.t, "a datagram arrives", func() bool {
		k.say(word)
		for {
			got, err := k.listen(100 * time.Millisecond)
			switch {
			case err != nil:
				return false
			case got == word:
				return true
			case !repeated(got):
				k.t.Fatalf("received %q, which should have been lost", got)
			}
		}
	})
}

// repeated reports whether works or recovers sent the word, which may arrive more than
// once, unlike say's.
func repeated(word string) bool {
	return word == "anyone?" || strings.HasPrefix(word, "hello ")
}
