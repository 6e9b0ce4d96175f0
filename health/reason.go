package health

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/herald-vip/herald/internal/text"
)

// failure returns the outcome of a failed probe.
func failure(reason string) outcome { return outcome{kind: failed, reason: reason} }

// tooSlow returns the outcome of a probe that timed out.
func tooSlow(reason string) outcome { return outcome{kind: failed, reason: reason, slow: true} }

// wrongAnswer returns the outcome of an answer that the check does not accept.
func wrongAnswer(reason string) outcome { return outcome{kind: negative, reason: reason} }

// ownFailure returns the outcome of a fault of the check itself, which proves nothing about the server.
func ownFailure(reason string) outcome {
	return outcome{kind: failed, own: true, reason: "check's own: " + reason}
}

// exhausted are the errors of a node that has run out of descriptors, memory or ports.
var exhausted = []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS, syscall.EADDRNOTAVAIL}

// stageError is a fault of the connection. If err is a timeout, missing names what did not arrive.
type stageError struct {
	missing string
	err     error
}

func (e *stageError) Error() string { return e.missing + ": " + e.err.Error() }
func (e *stageError) Unwrap() error { return e.err }

// explain turns a fault of the connection into an outcome.
func explain(err error, timeout time.Duration) outcome {
	var (
		stage *stageError
		dns   *net.DNSError
		errno syscall.Errno
		out   = outcome{kind: failed}
	)
	inDNS := errors.As(err, &dns) // a name server that refuses is not the endpoint
	switch {
	case inDNS && isTimeout(err):
		out.reason = fmt.Sprintf("%s not resolved within %v", text.Short(dns.Name, maxText), timeout)
	case isTimeout(err):
		out.reason = "no answer"
		if errors.As(err, &stage) {
			out.reason = stage.missing
		}
		out.reason, out.slow = out.reason+fmt.Sprintf(" within %v", timeout), true
	case inDNS:
		out.reason = text.Short(dns.Error(), maxText)
	case errors.Is(err, syscall.ECONNREFUSED):
		out.kind, out.reason = refused, "connection refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		out.kind, out.reason = cut, "connection reset by the server"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		out.kind, out.reason = cut, "connection closed without a whole answer"
	case errors.As(err, &errno) && slices.Contains(exhausted, errno):
		// It counts as a failure all the same: a node that cannot probe should
		// not serve, and its last answer grows old.
		out = ownFailure(errno.Error())
	case errors.As(err, &errno):
		out.reason = errno.Error()
	default:
		if errors.As(err, &stage) {
			err = stage.err
		}
		out.reason = text.Short(err.Error(), maxText)
	}
	return out
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &ne) && ne.Timeout()
}

// explainTLS returns the outcome of a failed TLS connection; its reason is empty if err is not from TLS.
func (c *credentials) explainTLS(err error, now time.Time) outcome {
	var (
		invalid  x509.CertificateInvalidError
		unknown  x509.UnknownAuthorityError
		hostname x509.HostnameError
		verify   *tls.CertificateVerificationError
		noTLS    tls.RecordHeaderError
		op       *net.OpError
	)
	switch {
	case c.ca.good && now.After(c.ca.value.last.until) && errors.As(err, &verify):
		return ownFailure("caFile " + c.check.CAFile + ": certificate expired on " + date(c.ca.value.last.until))
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && now.Before(invalid.Cert.NotBefore):
		return failure("certificate is valid only from " + date(invalid.Cert.NotBefore) + ": compare the clocks")
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return failure("certificate expired on " + date(invalid.Cert.NotAfter))
	case errors.As(err, &unknown) && c.check.CAFile != "":
		return failure("certificate signed by an unknown authority (caFile " + c.check.CAFile + ")")
	case errors.As(err, &unknown):
		return failure("certificate signed by an unknown authority: set caFile")
	case errors.As(err, &hostname):
		return failure("certificate is for " + names(hostname.Certificate) + ", not for " + hostname.Host + ": set serverName")
	case errors.As(err, &verify):
		return failure(text.Short(verify.Err.Error(), maxText))
	case errors.As(err, &noTLS):
		return failure("the server does not speak TLS")
	case errors.As(err, &op) && op.Op == "remote error":
		return c.explainAlert(op.Err.Error(), now)
	}
	return outcome{}
}

// explainAlert returns the outcome of a TLS alert (RFC 8446 §6.2) from the server.
func (c *credentials) explainAlert(alert string, now time.Time) outcome {
	// In TLS 1.2 a missing certificate may show only as a handshake failure.
	mine := strings.Contains(alert, "certificate") || c.asked && strings.Contains(alert, "handshake failure")
	switch {
	case !mine:
		return failure("the server broke off TLS: " + alert)
	case c.check.ClientCertFile == "":
		return failure("the server wants a client certificate, set clientCertFile: " + alert)
	case now.After(c.client().until):
		return ownFailure("client certificate expired on " + date(c.client().until))
	default:
		return ownFailure("the server rejects the client certificate: " + alert)
	}
}

// denied returns the outcome of a 401 or 403 that the check does not accept.
func (c *credentials) denied(status int, now time.Time) outcome {
	anonymous := c.check.ClientCertFile == "" && c.check.TokenFile == ""
	switch {
	case anonymous && status == http.StatusUnauthorized:
		return failure("401: anonymous access is off, set clientCertFile or tokenFile")
	case anonymous:
		return failure("403: anonymous access is forbidden, set clientCertFile or tokenFile")
	case c.check.ClientCertFile != "" && now.After(c.client().until):
		return ownFailure(fmt.Sprintf("client certificate expired on %s (%d)", date(c.client().until), status))
	case status == http.StatusUnauthorized:
		return ownFailure("401: the server does not accept the client certificate or token")
	default:
		return ownFailure("403: the client certificate or token does not permit GET " + c.url.Path)
	}
}

// validity is the lifetime of a certificate; zero without a certificate.
type validity struct{ from, until time.Time }

// warning returns a warning if a certificate expires soon: within 7 days, or within the last
// tenth of its lifetime if that is shorter.
func (v validity) warning(now time.Time) string {
	left := v.until.Sub(now)
	switch {
	case v.until.IsZero() || left > min(7*24*time.Hour, v.until.Sub(v.from)/10):
		return ""
	case left <= 0:
		return "expired on " + date(v.until)
	case left >= 48*time.Hour:
		return fmt.Sprintf("expires in %d days (%s)", left/(24*time.Hour), date(v.until))
	case left >= time.Hour:
		return fmt.Sprintf("expires in %d h (%s)", left/time.Hour, date(v.until))
	default:
		return "expires within the hour (" + date(v.until) + ")"
	}
}

func date(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// names lists the names and addresses in a certificate.
func names(cert *x509.Certificate) string {
	all := cert.DNSNames
	for _, ip := range cert.IPAddresses {
		all = append(all[:len(all):len(all)], ip.String())
	}
	if len(all) == 0 {
		return "no name at all"
	}
	return text.Short(strings.Join(all, ", "), maxText)
}

// bodyReason returns a status and the most informative part of the body: the lines that
// kube-apiserver marks with [-] for failed checks, a Kubernetes message, or the first line.
func bodyReason(status int, body []byte) string {
	var bad []string
	first := ""
	for line := range strings.Lines(string(body)) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "[-]"):
			bad = append(bad, strings.TrimSuffix(line, ": reason withheld"))
		case first == "" && !strings.HasPrefix(line, "<") && strings.ContainsFunc(line, unicode.IsLetter): // no HTML
			first = line
		}
	}
	var object struct{ Message string } // such as a Kubernetes Status
	_ = json.Unmarshal(body, &object)
	said := text.Short(cmp.Or(strings.Join(bad, ", "), object.Message, first), maxText)
	if said = cmp.Or(said, http.StatusText(status)); said == "" {
		return fmt.Sprint(status)
	}
	return fmt.Sprintf("%d: %s", status, said)
}

// maxText is the maximum of characters that a reason quotes from outside.
const maxText = 120

// round shortens a latency for display.
func round(d time.Duration) time.Duration {
	if d < time.Millisecond {
		return d.Round(time.Microsecond)
	}
	return d.Round(100 * time.Microsecond)
}
