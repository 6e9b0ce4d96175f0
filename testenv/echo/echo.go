// Package echo is a server that answers with the request: by HTTP/1.1 and HTTP/2, with
// TLS and without it, by gRPC and by WebSockets.
package echo

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/websocket"
)

// Reply is the JSON answer to a request. The header X-Served-By also has the server's name.
type Reply struct {
	Server  string      `json:"server"`
	Proto   string      `json:"proto"`
	TLS     bool        `json:"tls"`
	Host    string      `json:"host"`
	Path    string      `json:"path"`
	Headers http.Header `json:"headers"`
}

// LargeHeader is the header of an answer to a request with the parameter large, which
// gives its size in bytes.
const LargeHeader = "X-Large"

// Server is an echo server with that name.
type Server struct{ Name string }

// ServeHTTP echoes the messages of gRPC calls and WebSockets, and answers anything else with a
// Reply.
func (s Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Served-By", s.Name)
	switch {
	case strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc"):
		echoMessages(w, r)
	case strings.EqualFold(r.Header.Get("Upgrade"), "websocket"):
		websocket.Server{Handler: s.talk}.ServeHTTP(w, r)
	default:
		s.reply(w, r)
	}
}

// echoMessages answers a gRPC call of any method with its own messages.
func echoMessages(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Trailer", "Grpc-Status")
	status := "0"
	if _, err := io.Copy(w, r.Body); err != nil {
		status = "13" // internal
	}
	w.Header().Set("Grpc-Status", status)
}

// talk sends its name and then echoes each message, until the client is gone.
func (s Server) talk(c *websocket.Conn) {
	message := s.Name
	for websocket.Message.Send(c, message) == nil && websocket.Message.Receive(c, &message) == nil {
	}
}

func (s Server) reply(w http.ResponseWriter, r *http.Request) {
	if n, err := strconv.Atoi(r.URL.Query().Get("large")); err == nil {
		w.Header().Set(LargeHeader, strings.Repeat("x", min(n, 1<<20)))
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(Reply{ // or the client is gone
		Server: s.Name, Proto: r.Proto, TLS: r.TLS != nil, Host: r.Host, Path: r.URL.Path, Headers: r.Header,
	})
}

// Serve answers on plain and, unless that is nil, by TLS on secure, until ctx ends. It
// then closes all connections at once.
func (s Server) Serve(ctx context.Context, plain, secure net.Listener, certificate tls.Certificate) error {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{
		Handler: s, Protocols: &protocols, ReadHeaderTimeout: 10 * time.Second,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}},
		// Probers reset their connections hundreds of times per second.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	ended := make(chan error, 2)
	listeners := 1
	go func() { ended <- server.Serve(plain) }()
	if secure != nil {
		listeners++
		go func() { ended <- server.ServeTLS(secure, "", "") }()
	}
	var failed error
	for range listeners {
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			failed = errors.Join(failed, fmt.Errorf("serve: %w", err))
			server.Close()
		}
	}
	return failed
}
