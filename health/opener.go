package health

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/url"
	"time"
)

// opener opens connections to the endpoint of a URL.
type opener struct {
	address string // host:port to dial
	secure  bool
	timeout time.Duration
	dial    dialFunc
	creds   *credentials
}

// newOpener returns an opener with the credentials of check. The protocol is an ALPN name (RFC 7301).
func newOpener(check HTTP, u *url.URL, protocol string, timeout time.Duration, dial dialFunc) opener {
	secure, port := u.Scheme == "https", "80"
	if secure {
		port = "443"
	}
	return opener{
		address: net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port)), secure: secure, timeout: timeout, dial: dial,
		creds: newCredentials(check, u, protocol),
	}
}

// open dials a fresh connection and, for https, secures it. The caller has refreshed the credentials.
func (o *opener) open(ctx context.Context) (*wire, error) {
	raw, err := o.dial(ctx, "tcp", o.address)
	if err != nil {
		return nil, &stageError{"no connection", err}
	}
	w := newWire(raw)
	if !o.secure {
		return w, nil
	}
	conn := tls.Client(raw, o.creds.tls)
	if err := w.during(ctx, conn.Handshake); err != nil {
		return nil, &stageError{"no TLS handshake", err}
	}
	w.use(conn)
	if chain := conn.ConnectionState().PeerCertificates; len(chain) > 0 {
		o.creds.server = validity{chain[0].NotBefore, chain[0].NotAfter}
	}
	return w, nil
}

// explain turns a fault of the connection into an outcome.
func (o *opener) explain(err error) outcome {
	if out := o.creds.explainTLS(err, time.Now()); out.reason != "" {
		return out
	}
	return explain(err, o.timeout)
}
