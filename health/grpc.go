package health

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	transport "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/herald-vip/herald/internal/text"
	"github.com/herald-vip/herald/internal/yaml"
)

// GRPC is a question by gRPC's health protocol (`grpc.health.v1.Health/Check`), over TLS; the answer must be SERVING. NOT_SERVING is a wrong answer; an unknown service is no answer.
type GRPC struct {
	// Address is host:port. Required.
	Address string `yaml:"address"`
	// Service is the service to ask for. Default: the server as a whole.
	Service string `yaml:"service"`
	// Plaintext asks without TLS. Default: false.
	Plaintext bool `yaml:"plaintext"`
	// CAFile holds the PEM certificates that may have signed the server's. Default: the system's.
	CAFile string `yaml:"caFile"`
	// ServerName is the name the server's certificate must carry. Default: the host of `address`.
	ServerName string `yaml:"serverName"`
	// InsecureSkipVerify accepts any server certificate. Default: false.
	InsecureSkipVerify bool `yaml:"insecureSkipVerify"`
	// ClientCertFile is a PEM client certificate, read again when it changes.
	ClientCertFile string `yaml:"clientCertFile"`
	// ClientKeyFile is the key of ClientCertFile.
	ClientKeyFile string `yaml:"clientKeyFile"`
}

// Validate implements [Check.Validate] for this kind.
func (g *GRPC) Validate(r *yaml.Report, p yaml.Path) {
	r.HostPort(p.Field("address"), g.Address)
	without := ""
	if g.Plaintext {
		without = "plaintext has no certificates: remove one"
	}
	validateTLS(r, p, g.TLS(), without)
}

// TLS returns an HTTP check with the TLS fields of g; nil if g is nil.
func (g *GRPC) TLS() *HTTP {
	if g == nil {
		return nil
	}
	return &HTTP{
		CAFile: g.CAFile, ServerName: g.ServerName, InsecureSkipVerify: g.InsecureSkipVerify,
		ClientCertFile: g.ClientCertFile, ClientKeyFile: g.ClientKeyFile,
	}
}

// grpcProber probes by gRPC's health protocol, over a new connection each time. A kept connection
// would hide that the server accepts no new ones, and it could not be monitored while the library reads it.
type grpcProber struct {
	opener
	service  string
	idleConn // always empty
}

func (g *GRPC) prober(m *Monitor, timeout time.Duration) (prober, error) {
	u := &url.URL{Scheme: "https", Host: g.Address}
	if g.Plaintext {
		u.Scheme = "http"
	}
	p := &grpcProber{opener: newOpener(*g.TLS(), u, "h2", timeout, m.dial), service: g.Service}
	return named{p, cmp.Or(g.Service, "the server") + " at " + g.Address}, nil
}

func (p *grpcProber) probe(ctx context.Context) outcome {
	out := p.ask(ctx)
	out.warning = p.creds.warning(time.Now())
	return out
}

func (p *grpcProber) ask(ctx context.Context) outcome {
	if err := p.creds.refresh(); err != nil {
		return ownFailure(err.Error())
	}
	start := time.Now()
	w, err := p.open(ctx)
	if err != nil {
		return p.explain(err)
	}
	defer w.close()
	// The connection is made and secured here, where its errors can be told apart.
	conn := &recordingConn{Conn: w.conn}
	client, err := grpc.NewClient("passthrough:///"+p.address,
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return conn, nil }),
		grpc.WithTransportCredentials(establishedCreds{insecure.NewCredentials(), p.secure}),
		grpc.WithDisableRetry(), grpc.WithDisableServiceConfig())
	if err != nil {
		return failure(text.Short(err.Error(), maxText))
	}
	defer client.Close()
	reply, err := healthpb.NewHealthClient(client).Check(ctx, &healthpb.HealthCheckRequest{Service: p.service})
	if err != nil {
		return p.explainStatus(ctx, conn, err)
	}
	switch s := reply.GetStatus(); s {
	case healthpb.HealthCheckResponse_SERVING:
		return outcome{kind: passed, reason: fmt.Sprintf("%v in %v", s, round(time.Since(start)))}
	case healthpb.HealthCheckResponse_NOT_SERVING:
		return wrongAnswer(s.String())
	default:
		return failure(s.String())
	}
}

// explainStatus turns an error of the library into an outcome: the server's status, or a failed connection.
func (p *grpcProber) explainStatus(ctx context.Context, conn *recordingConn, err error) outcome {
	said := status.Convert(err)
	ended := conn.end.Load()
	switch {
	case ctx.Err() != nil:
		return tooSlow(fmt.Sprintf("no answer within %v", p.timeout))
	case said.Code() == codes.Unavailable && ended != nil:
		return p.explain(&stageError{"no answer", *ended})
	case said.Code() == codes.NotFound:
		return failure("the server does not know the service")
	case said.Code() == codes.Unimplemented:
		return failure("the server does not speak gRPC's health protocol")
	}
	return failure(fmt.Sprintf("%v: %s", said.Code(), text.Short(said.Message(), maxText)))
}

// recordingConn is a connection that records why it ended. It hides failed writes: the last data from the
// server explains more, and a broken connection fails the read as well.
type recordingConn struct {
	net.Conn
	end atomic.Pointer[error]
}

func (c *recordingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.end.CompareAndSwap(nil, &err)
	}
	return n, err
}

func (c *recordingConn) Write(p []byte) (int, error) {
	_, _ = c.Conn.Write(p)
	return len(p), nil
}

// establishedCreds are the credentials of an established connection, after its TLS handshake if it has one.
type establishedCreds struct {
	transport.TransportCredentials
	secure bool
}

// Info makes requests use the scheme https on a secured connection.
func (m establishedCreds) Info() transport.ProtocolInfo {
	if m.secure {
		return transport.ProtocolInfo{SecurityProtocol: "tls"}
	}
	return m.TransportCredentials.Info()
}
