package health_test

import (
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	grpchealth "google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/testenv/must"
)

// grpcServer serves over TLS unless secure is nil, with the services that offer registers.
func grpcServer(t *testing.T, secure *tls.Config, offer func(*grpc.Server)) (string, *grpc.Server) {
	t.Helper()
	creds := insecure.NewCredentials()
	if secure != nil {
		creds = credentials.NewTLS(secure)
	}
	s := grpc.NewServer(grpc.Creds(creds))
	offer(s)
	listener := must.Get[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	done := make(chan error, 1)
	go func() { done <- s.Serve(listener) }()
	t.Cleanup(func() {
		s.Stop()
		must.Do(t, <-done)
	})
	return listener.Addr().String(), s
}

// states registers the health protocol for some services.
func states(s *grpc.Server) {
	h := grpchealth.NewServer() // the server as a whole serves
	h.SetServingStatus("down", healthpb.HealthCheckResponse_NOT_SERVING)
	h.SetServingStatus("unclear", healthpb.HealthCheckResponse_UNKNOWN)
	healthpb.RegisterHealthServer(s, h)
}

func TestGRPC(t *testing.T) {
	ca, other := newAuthority(t, "ca", year), newAuthority(t, "other", year)
	demanding := &tls.Config{Certificates: []tls.Certificate{ca.issue(t).tls()}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.pool()}
	plain, _ := grpcServer(t, nil, states)
	secure, _ := grpcServer(t, &tls.Config{Certificates: []tls.Certificate{ca.issue(t).tls()}}, states)
	mutual, _ := grpcServer(t, demanding, states)
	mute, _ := grpcServer(t, nil, func(*grpc.Server) {})
	closed := must.Get[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	must.Do(t, closed.Close())
	frozen := must.Get[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	defer frozen.Close()
	hangsUp := must.Get[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	defer hangsUp.Close()
	go func() {
		for c, err := hangsUp.Accept(); err == nil; c, err = hangsUp.Accept() {
			_ = c.Close()
		}
	}()
	client := ca.issue(t)
	caFile, cert, key := file(t, ca.certPEM()), file(t, client.certPEM()), file(t, client.keyPEM(t))
	for _, tt := range []struct {
		name        string
		check       health.GRPC
		passes, not bool
		reason      string
	}{
		{"plain", health.GRPC{Address: plain, Plaintext: true}, true, false, "the server at " + plain + ": SERVING in "},
		{"not serving", health.GRPC{Address: plain, Plaintext: true, Service: "down"}, false, true, "down at " + plain + ": NOT_SERVING"},
		{"unclear", health.GRPC{Address: plain, Plaintext: true, Service: "unclear"}, false, false, "UNKNOWN"},
		{"not known", health.GRPC{Address: plain, Plaintext: true, Service: "typo"}, false, false, "the server does not know the service"},
		{"another protocol", health.GRPC{Address: mute, Plaintext: true}, false, false, "does not speak gRPC's health protocol"},
		{"TLS", health.GRPC{Address: secure, CAFile: caFile}, true, false, "SERVING in "},
		{"another authority", health.GRPC{Address: secure, CAFile: file(t, other.certPEM())}, false, false, "certificate signed by an unknown authority"},
		{"another name", health.GRPC{Address: secure, CAFile: caFile, ServerName: "etcd"}, false, false, "not for etcd: set serverName"},
		{"unverified", health.GRPC{Address: secure, InsecureSkipVerify: true}, true, false, "SERVING in "},
		{"client certificate", health.GRPC{Address: mutual, CAFile: caFile, ClientCertFile: cert, ClientKeyFile: key}, true, false, "SERVING in "},
		{"no client certificate", health.GRPC{Address: mutual, CAFile: caFile}, false, false, "the server wants a client certificate, set clientCertFile"},
		{"missing file", health.GRPC{Address: secure, CAFile: "/no/such/ca"}, false, false, "check's own: caFile /no/such/ca: no such file"},
		{"TLS for plain", health.GRPC{Address: plain, CAFile: caFile}, false, false, "the server does not speak TLS"},
		// TCP resets a connection that is closed with unread data, so the client sees a reset or an end.
		{"plain for TLS", health.GRPC{Address: secure, Plaintext: true}, false, false, "connection "},
		{"refused", health.GRPC{Address: closed.Addr().String(), Plaintext: true}, false, true, "connection refused"},
		{"frozen", health.GRPC{Address: frozen.Addr().String(), Plaintext: true}, false, false, "no answer within 1s"},
		{"frozen TLS", health.GRPC{Address: frozen.Addr().String()}, false, false, "no TLS handshake within 1s"},
		{"hangs up", health.GRPC{Address: hangsUp.Addr().String(), Plaintext: true}, false, false, "connection "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for inverted, want := range map[bool]bool{false: tt.passes, true: tt.not} {
				passes, reason := probeOnce(t, health.Check{GRPC: &tt.check, Not: inverted}, tt.reason)
				if passes != want || !strings.Contains(reason, tt.reason) {
					t.Errorf("not %v: %v %q, want %v …%q…", inverted, passes, reason, want, tt.reason)
				}
			}
		})
	}
}

// The next probe detects a dead server, regardless of fall.
func TestGRPCServerDies(t *testing.T) {
	address, server := grpcServer(t, nil, states)
	told := realMonitor(t, health.Check{Name: "grpc", GRPC: &health.GRPC{Address: address, Plaintext: true},
		Pace: health.Pace{Interval: 10 * time.Millisecond, Timeout: patience, Rise: 2, Fall: 100}})
	next(t, told, health.Healthy, "SERVING")
	server.Stop()
	next(t, told, health.Unhealthy, "connection refused")
}
