package echo_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/websocket"

	"github.com/herald-vip/herald/testenv/echo"
	"github.com/herald-vip/herald/testenv/must"
)

func TestEcho(t *testing.T) {
	l := must.Get[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- echo.Server{Name: "a"}.Serve(ctx, l, nil, tls.Certificate{}) }()
	defer func() { stop(); must.Do(t, <-ended) }()
	at := l.Addr().String()

	for proto, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		var protocols http.Protocols
		protocols.SetHTTP1(!http2)
		protocols.SetUnencryptedHTTP2(http2)
		transport := &http.Transport{Protocols: &protocols}
		defer transport.CloseIdleConnections()
		client := http.Client{Transport: transport}
		response := must.Get[*http.Response](t)(client.Get("http://" + at + "/x?large=9"))
		var reply echo.Reply
		must.Do(t, json.NewDecoder(response.Body).Decode(&reply))
		must.Do(t, response.Body.Close())
		if reply.Server != "a" || reply.Proto != proto || reply.Host != at || reply.Path != "/x" || len(response.Header.Get(echo.LargeHeader)) != 9 {
			t.Errorf("the reply is %+v with the headers %v", reply, response.Header)
		}
		response = must.Get[*http.Response](t)(client.Post("http://"+at+"/s/m", "application/grpc", strings.NewReader("message")))
		body := must.Get[[]byte](t)(io.ReadAll(response.Body))
		must.Do(t, response.Body.Close())
		if string(body) != "message" || response.Trailer.Get("Grpc-Status") != "0" {
			t.Errorf("the call has the answer %q and the trailer %v", body, response.Trailer)
		}
	}

	socket := must.Get[*websocket.Conn](t)(websocket.Dial("ws://"+at, "", "http://"+at))
	defer socket.Close()
	must.Do(t, websocket.Message.Send(socket, "hello"))
	for _, want := range []string{"a", "hello"} {
		var got string
		must.Do(t, websocket.Message.Receive(socket, &got))
		if got != want {
			t.Errorf("the socket says %q, want %q", got, want)
		}
	}
}
