package metrics

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/must"
)

// Clients that do not finish keep no probe out, or the kubelet would end Herald.
func TestServesBesideClientsThatNeverFinish(t *testing.T) {
	l := must.Get[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	s := newServer(l, slog.New(slog.DiscardHandler), func() admin.Status { return admin.Status{} }, nil, nil)
	served := make(chan error)
	go func() { served <- s.Serve() }()
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	address := l.Addr().String()
	var stuck []net.Conn
	for range 5 * maxClients { // who waits for their time-outs waits for 50 s
		conn := must.Get[net.Conn](t)(net.Dial("tcp", address))
		defer conn.Close()
		must.Get[int](t)(fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: "))
		stuck = append(stuck, conn)
	}
	get := http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	answer := must.Get[*http.Response](t)(get.Get("http://" + address + "/healthz"))
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Error(answer.Status)
	}
	if _, err := stuck[0].Read(make([]byte, 1)); err == nil {
		t.Error("the oldest connection got an answer")
	}
}
