//go:build e2e

package tenants

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/websocket"

	"github.com/herald-vip/herald/internal/wake"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/echo"
	"github.com/herald-vip/herald/testenv/tenants"
)

// visitor is a client of the gateway. It asks the lab's name server for names, and
// trusts the gateway.
type visitor struct {
	*tenants.Lab
	ca *x509.CertPool
}

// newVisitor returns a visitor that trusts a cluster's CA.
func newVisitor(t *testing.T, l *tenants.Lab, c *tenants.Cluster) visitor {
	t.Helper()
	return visitor{l, site.Get[*x509.CertPool](t)(c.CA())}
}

// patience bounds one visit.
const patience = 5 * time.Second

// named returns an error unless the name server has the gateway's VIPs for a host.
func (v visitor) named(ctx context.Context, host string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	want, err := v.GatewayVIPs(ctx)
	if err != nil {
		return err
	}
	found, err := v.Resolver().LookupNetIP(ctx, "ip", host+".")
	return site.Check(err, !slices.Equal(found, want), "%s has the addresses %v, want %v", host, found, want)
}

// nameless returns an error unless the name server reports that there is no such host.
func (v visitor) nameless(ctx context.Context, host string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	found, err := v.Resolver().LookupNetIP(ctx, "ip", host+".")
	var missing *net.DNSError
	if errors.As(err, &missing) && missing.IsNotFound {
		return nil
	}
	return fmt.Errorf("%s has the addresses %v, and the error %w, want no such host", host, found, err)
}

// HTTP versions of visitors.
const (
	http1 = 1
	http2 = 2
)

// do makes a request by a version of HTTP, on its own connection, and reads the answer.
func (v visitor) do(version int, r *http.Request) (*http.Response, []byte, error) {
	var protocols http.Protocols
	protocols.SetHTTP1(version == http1)
	protocols.SetHTTP2(version == http2)
	protocols.SetUnencryptedHTTP2(version == http2)
	transport := &http.Transport{DialContext: v.DialName, TLSClientConfig: &tls.Config{RootCAs: v.ca}, Protocols: &protocols, MaxResponseHeaderBytes: 1 << 20}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	response, err := transport.RoundTrip(r.WithContext(ctx))
	if err != nil {
		return nil, nil, err
	}
	body, err := io.ReadAll(response.Body)
	err = errors.Join(err, response.Body.Close())
	if err == nil && (response.StatusCode != http.StatusOK || response.ProtoMajor != version) {
		err = fmt.Errorf("%s answers by %s with %s: %s", r.URL, response.Proto, response.Status, body)
	}
	return response, body, err
}

// get requests a URL by a version of HTTP, and returns the server's report of the
// request. It returns an error if the status is not 200.
func (v visitor) get(ctx context.Context, version int, url string, header http.Header) (reply echo.Reply, response *http.Response, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return reply, nil, err
	}
	if header != nil {
		request.Header = header
	}
	response, body, err := v.do(version, request)
	if err != nil {
		return reply, response, err
	}
	return reply, response, json.Unmarshal(body, &reply)
}

// call makes a gRPC call, https://HOST:PORT/SERVICE/METHOD, and returns the server
// that sent the message back.
func (v visitor) call(ctx context.Context, url, message string) (server string, err error) {
	n := len(message)
	frame := append([]byte{0, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}, message...)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(frame))
	if err != nil {
		return "", err
	}
	request.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}}
	response, body, err := v.do(http2, request)
	if err != nil {
		return "", err
	}
	if status := response.Trailer.Get("Grpc-Status"); status != "0" || !bytes.Equal(body, frame) {
		return "", fmt.Errorf("%s answers with the status %q and %q, want 0 and %q", url, status, body, frame)
	}
	return response.Header.Get("X-Served-By"), nil
}

// talk opens a WebSocket, ws://HOST/PATH, and returns the server that sent each message back.
func (v visitor) talk(ctx context.Context, address string, messages ...string) (server string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	u, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	config, err := websocket.NewConfig(address, "http://"+u.Host)
	if err != nil {
		return "", err
	}
	port := map[string]string{"ws": "80", "wss": "443"}[u.Scheme]
	conn, err := v.DialName(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if u.Scheme == "wss" {
		conn = tls.Client(conn, &tls.Config{RootCAs: v.ca, ServerName: u.Hostname(), NextProtos: []string{"http/1.1"}})
	}
	end, _ := ctx.Deadline()
	if err := conn.SetDeadline(end); err != nil {
		return "", err
	}
	socket, err := websocket.NewClient(config, conn)
	if err != nil {
		return "", err
	}
	if err := websocket.Message.Receive(socket, &server); err != nil {
		return "", err
	}
	for _, m := range messages {
		var back string
		if err := errors.Join(websocket.Message.Send(socket, m), websocket.Message.Receive(socket, &back)); err != nil {
			return "", err
		}
		if back != m {
			return "", fmt.Errorf("%s sends %q back, want %q", address, back, m)
		}
	}
	return server, nil
}

// hosts are a tenant's served names, each leading to the server of package echo.
type hosts struct {
	ingress, http string
	grpc          string // a GRPCRoute
	tls           string // a TLSRoute, to the server's port for TLS
}

// reaches visits all hosts of a tenant in every way, once they have their names.
func (v visitor) reaches(t *testing.T, c *tenants.Cluster, h hosts) {
	for _, host := range []string{h.ingress, h.http, h.grpc, h.tls} {
		site.Eventually(t, site.Soon, func() error { return v.named(t.Context(), host) })
	}
	// by tries until it works, and checks the server that answered.
	by := func(what string, try func(ctx context.Context) (server string, err error)) {
		t.Run(what, func(t *testing.T) {
			site.Eventually(t, site.Soon, func() error {
				server, err := try(t.Context())
				return errors.Join(err, site.ErrorIf(err == nil && !slices.Contains(c.Nodes(), server), "%q answers, want a server of %s", server, c.Name))
			})
		})
	}
	for _, host := range []string{h.ingress, h.http} {
		for _, scheme := range []string{"http", "https"} {
			for _, version := range []int{http1, http2} {
				by(fmt.Sprintf("HTTP %d at %s of %s", version, scheme, host), func(ctx context.Context) (string, error) {
					return v.page(ctx, version, scheme, host)
				})
			}
		}
		for _, scheme := range []string{"ws", "wss"} {
			by(fmt.Sprintf("a WebSocket at %s of %s", scheme, host), func(ctx context.Context) (string, error) {
				return v.talk(ctx, scheme+"://"+host+"/socket", "one", strings.Repeat("two", 1<<15))
			})
		}
	}
	for _, scheme := range []string{"http", "https"} {
		by("gRPC at "+scheme, func(ctx context.Context) (string, error) {
			return v.call(ctx, scheme+"://"+h.grpc+"/echo.Echo/Echo", "hello")
		})
	}
	by("TLS passed through", func(ctx context.Context) (string, error) {
		reply, _, err := newVisitor(t, v.Lab, c).get(ctx, http2, "https://"+h.tls+":9443/through", nil)
		return reply.Server, errors.Join(err, site.ErrorIf(err == nil && !reply.TLS, "the server did not see TLS"))
	})
}

// page requests a page, also with large headers, and returns the answering server.
func (v visitor) page(ctx context.Context, version int, scheme, host string) (server string, err error) {
	at := scheme + "://" + host + "/some/page"
	reply, _, err := v.get(ctx, version, at, nil)
	if err != nil {
		return "", err
	}
	if reply.Host != host || reply.Path != "/some/page" || reply.TLS {
		return "", fmt.Errorf("%s reached the server as %+v", at, reply)
	}
	for _, size := range []int{16 << 10, 32 << 10} {
		large, response, err := v.get(ctx, version, fmt.Sprintf("%s?large=%d", at, size), http.Header{echo.LargeHeader: {strings.Repeat("y", size)}})
		if err != nil {
			return "", fmt.Errorf("headers of %d bytes: %w", size, err)
		}
		if there, back := len(large.Headers.Get(echo.LargeHeader)), len(response.Header.Get(echo.LargeHeader)); there != size || back != size {
			return "", fmt.Errorf("headers of %d bytes have %d there and %d back", size, there, back)
		}
	}
	return reply.Server, nil
}

// visits are requests one after the other, 5 ms apart, each on its own connection.
type visits struct {
	mu     sync.Mutex
	failed map[time.Time]error
	starts []time.Time
	stop   func()
}

// visit requests a host's page until the test is over, or stop is called.
func (v visitor) visit(t *testing.T, host string) *visits {
	t.Helper()
	out := &visits{failed: make(map[time.Time]error)}
	out.stop = site.Meanwhile(t, func(ctx context.Context) {
		for ctx.Err() == nil {
			began := time.Now()
			_, _, err := v.get(ctx, http1, "http://"+host+"/", http.Header{})
			if ctx.Err() != nil {
				return
			}
			out.mu.Lock()
			out.starts = append(out.starts, began)
			if err != nil {
				out.failed[began] = err
			}
			out.mu.Unlock()
			wake.Pause(ctx, 5*time.Millisecond)
		}
	})
	return out
}

// since returns how many requests began since a time, and the errors of the failed ones.
func (v *visits) since(began time.Time) (all int, failed []error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, at := range v.starts {
		if at.Before(began) {
			continue
		}
		all++
		if err := v.failed[at]; err != nil {
			failed = append(failed, fmt.Errorf("after %v: %w", at.Sub(began), err))
		}
	}
	return all, failed
}

// goesOn waits for that many more requests.
func (v *visits) goesOn(t *testing.T, more int) {
	t.Helper()
	began := time.Now()
	site.Eventually(t, time.Minute, func() error {
		all, _ := v.since(began)
		return site.ErrorIf(all < more, "%d requests, want %d", all, more)
	})
}
