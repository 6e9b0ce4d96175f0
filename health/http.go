package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/herald-vip/herald/internal/text"
	"github.com/herald-vip/herald/internal/yaml"
)

const (
	// maxReuse is how long one connection serves probes. Reuse saves both sides most TLS handshakes. A fresh connection
	// detects two faults that reuse hides: the server accepts no new connections, or its certificate was replaced or
	// has expired.
	maxReuse = time.Second

	maxAnswer = 128 << 10 // bytes of headers, or of data that a server sends unasked
	maxBody   = 1 << 20   // bytes, as sent over the wire
	maxKept   = 64 << 10  // bytes of a body, for the reason
)

// HTTP is a GET over HTTP/1.1 that must answer with an accepted status. Redirects are not followed, and the environment's proxies are not used. A 429 is overload: it changes no state and shows as a warning.
type HTTP struct {
	// URL is the http or https URL to GET, with an answer of less than 1 MiB. Required.
	URL string `yaml:"url"`
	// CAFile holds the PEM certificates that may have signed the server's. Default: the system's.
	CAFile string `yaml:"caFile"`
	// ServerName is the name the server's certificate must carry. Default: the URL's host.
	ServerName string `yaml:"serverName"`
	// InsecureSkipVerify accepts any server certificate. Default: false.
	InsecureSkipVerify bool `yaml:"insecureSkipVerify"`
	// ClientCertFile is a PEM client certificate, read again when it changes.
	ClientCertFile string `yaml:"clientCertFile"`
	// ClientKeyFile is the key of ClientCertFile.
	ClientKeyFile string `yaml:"clientKeyFile"`
	// TokenFile holds a bearer token (RFC 6750), read again when it changes.
	TokenFile string `yaml:"tokenFile"`
	// Status lists the accepted HTTP statuses. Default: [200].
	Status []int `yaml:"status" default:"200" want:"200 to 599"`
}

// Validate implements [Check.Validate] for this kind.
func (h *HTTP) Validate(r *yaml.Report, p yaml.Path) {
	scheme, err := CheckURL(h.URL)
	if err != nil {
		r.Errorf(p.Field("url"), "%v", err)
	}
	without := ""
	if scheme == "http" {
		without = "an http url has no certificates: use https or remove it"
	}
	validateTLS(r, p, h, without)
	r.File(p.Field("tokenFile"), h.TokenFile)
	if len(h.Status) == 0 {
		r.Errorf(p.Field("status"), "list at least one status")
	}
	for i, status := range h.Status {
		if slices.Contains(h.Status[:i], status) {
			r.Errorf(p.Field("status").Item(i), "%d is listed twice", status)
		}
	}
}

// Files returns the files that the check reads while it runs.
func (h *HTTP) Files() []string {
	return slices.DeleteFunc([]string{h.CAFile, h.ClientCertFile, h.ClientKeyFile, h.TokenFile}, func(name string) bool { return name == "" })
}

// validateTLS reports mistakes in the fields of h that only TLS uses. If without is not empty, there is no
// TLS, and without is the sentence that refuses each of these fields.
func validateTLS(r *yaml.Report, p yaml.Path, h *HTTP, without string) {
	if without != "" {
		for name, given := range map[string]bool{
			"caFile": h.CAFile != "", "serverName": h.ServerName != "", "insecureSkipVerify": h.InsecureSkipVerify,
			"clientCertFile": h.ClientCertFile != "", "clientKeyFile": h.ClientKeyFile != "",
		} {
			if given {
				r.Errorf(p.Field(name), "%s", without)
			}
		}
		return
	}
	r.File(p.Field("caFile"), h.CAFile)
	r.File(p.Field("clientCertFile"), h.ClientCertFile)
	r.File(p.Field("clientKeyFile"), h.ClientKeyFile)
	switch {
	case h.ClientCertFile != "" && h.ClientKeyFile == "":
		r.Errorf(p.Field("clientKeyFile"), "missing: clientCertFile needs its key")
	case h.ClientCertFile == "" && h.ClientKeyFile != "":
		r.Errorf(p.Field("clientCertFile"), "missing: clientKeyFile needs its certificate")
	}
	if h.InsecureSkipVerify && h.CAFile != "" {
		r.Errorf(p.Field("caFile"), "has no effect with insecureSkipVerify: remove one of the two")
	}
}

// CheckURL returns the scheme of a URL, and an error if a check cannot GET it. Errors do not repeat the URL, as it may hold a secret.
func CheckURL(s string) (scheme string, err error) {
	if s == "" {
		return "", errors.New("missing: give the URL to GET")
	}
	u, err := url.Parse(s)
	if err != nil {
		return "", errors.New("want a URL such as https://127.0.0.1:6443/readyz")
	}
	port, portErr := strconv.ParseUint(u.Port(), 10, 16)
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return "", errors.New("want a URL that begins with http:// or https://")
	case u.User != nil:
		return u.Scheme, errors.New("a URL may hold no user or password: use tokenFile")
	case u.Hostname() == "":
		return u.Scheme, errors.New("has no host, want a URL such as https://127.0.0.1:6443/readyz")
	case u.Port() != "" && (portErr != nil || port == 0):
		return u.Scheme, fmt.Errorf("want a port from 1 to 65535, got %s", u.Port())
	}
	return u.Scheme, nil
}

// httpProber speaks HTTP/1.1 over one connection at a time. It does not use http.Transport, because the idle connection
// must be monitored and a probe must know whether its connection was reused.
type httpProber struct {
	opener
	status []int // the accepted ones
	idleConn
}

func (h *HTTP) prober(m *Monitor, timeout time.Duration) (prober, error) {
	u, err := url.Parse(h.URL)
	if err != nil {
		return nil, fmt.Errorf("http url: %w", err)
	}
	status := h.Status
	if len(status) == 0 {
		status = []int{http.StatusOK}
	}
	p := &httpProber{opener: newOpener(*h, u, "http/1.1", timeout, m.dial), status: status}
	return named{p, http.MethodGet + " " + u.Redacted()}, nil
}

func (p *httpProber) probe(ctx context.Context) outcome {
	out := p.attempt(ctx)
	out.warning = p.creds.warning(time.Now())
	return out
}

// attempt sends one request over the idle connection, and over a fresh one if there is none or the server cut it.
func (p *httpProber) attempt(ctx context.Context) outcome {
	if err := p.creds.refresh(); err != nil {
		return ownFailure(err.Error())
	}
	if w := p.reuse(); w != nil {
		if out := p.ask(ctx, w); out.kind != cut {
			return out
		}
	}
	w, err := p.open(ctx)
	if err != nil {
		return p.explain(err)
	}
	return p.ask(ctx, w)
}

// reuse takes the idle connection; nil if it is too old or no longer usable.
func (p *httpProber) reuse() *wire {
	w := p.idle
	if w == nil {
		return nil
	}
	p.idle = nil
	if time.Since(w.opened) >= maxReuse || w.resume() != nil {
		w.close()
		return nil
	}
	return w
}

// ask sends the request over w, judges the answer, and keeps w if it can carry another request.
func (p *httpProber) ask(ctx context.Context, w *wire) outcome {
	var (
		start = time.Now()
		ans   answer
	)
	err := w.during(ctx, func() (err error) {
		ans, err = exchange(w, p.creds.request)
		return err
	})
	if err != nil {
		return p.explain(err)
	}
	if ans.reusable {
		w.watch(discardNothing)
		p.idle = w
	} else {
		w.close()
	}
	return p.outcomeOf(ans, time.Since(start))
}

// answer is the part of an HTTP response that decides the outcome.
type answer struct {
	status   int
	location string // of a redirect
	body     []byte // its first maxKept bytes
	reusable bool   // the connection can carry another request
}

// exchange writes a request and reads the answer to it.
func exchange(w *wire, request []byte) (answer, error) {
	// A server that rejects our certificate may send an alert and hang up while we still write. The alert explains more
	// than our write error, and a broken connection fails the read as well.
	_, _ = w.conn.Write(request)

	start := time.Now()
	resp, err := readFinal(w)
	if err != nil {
		if w.limit.N <= 0 {
			err = fmt.Errorf("more than %d KiB of headers", maxAnswer>>10)
		}
		return answer{}, &stageError{"no answer", err}
	}
	defer func() { _ = resp.Body.Close() }()

	took := time.Since(start)
	w.limit.N = maxBody
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxKept))
	size := int64(len(body))
	if err == nil {
		var more int64
		more, err = io.Copy(io.Discard, resp.Body)
		size += more
	}
	if w.limit.N <= 0 {
		return answer{}, fmt.Errorf("%d, then %d MiB without an end: check a URL with a short answer", resp.StatusCode, maxBody>>20)
	}
	if err != nil {
		return answer{}, &stageError{fmt.Sprintf("headers in %v, then %d B of the body and no end", round(took), size), err}
	}
	return answer{
		status:   resp.StatusCode,
		location: resp.Header.Get("Location"),
		body:     body,
		reusable: !resp.Close && w.r.Buffered() == 0,
	}, nil
}

// readFinal reads an answer up to its body, skipping interim ones (RFC 9110, section 15.2).
func readFinal(w *wire) (*http.Response, error) {
	const maxInterim = 5
	for range maxInterim {
		resp, err := http.ReadResponse(w.r, nil)
		if err != nil || resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols {
			return resp, err
		}
	}
	return nil, errors.New("only interim answers (1xx)")
}

// outcomeOf returns the outcome of an answer that took the given time.
func (p *httpProber) outcomeOf(a answer, took time.Duration) outcome {
	switch {
	case slices.Contains(p.status, a.status):
		return outcome{kind: passed, reason: fmt.Sprintf("%d in %v", a.status, round(took))}
	case a.status == http.StatusTooManyRequests:
		return outcome{kind: overloaded, reason: bodyReason(a.status, a.body), slow: true}
	case a.status == http.StatusUnauthorized, a.status == http.StatusForbidden:
		return p.creds.denied(a.status, time.Now())
	case a.status >= 300 && a.status < 400:
		return wrongAnswer(fmt.Sprintf("%d: redirects are not followed (to %s)", a.status, text.Short(a.location, maxText)))
	default:
		return outcome{kind: negative, reason: bodyReason(a.status, a.body), slow: a.status >= http.StatusInternalServerError}
	}
}
