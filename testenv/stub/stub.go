// Package stub replaces the endpoints that Herald's health checks use: /readyz and
// /livez of a kube-apiserver, /v2/ of a container registry. It can fail in every way
// that the real ones do: a bad status, a slow answer, no answer, or an answer that
// stalls halfway.
//
// POST /stub/P controls the check P. Its parameters are the fields of Answer and
// replace the previous ones; without parameters the check is healthy again:
//
//	curl -X POST 'http://10.0.1.1:6443/stub/readyz?status=500&body=etcd+failed'
//	curl -X POST 'http://10.0.1.1:6443/stub/readyz?delay=300ms'
//	curl -X POST 'http://10.0.1.1:5001/stub/v2?hang=headers'
//	curl -X POST 'http://10.0.1.1:5001/stub/v2'
package stub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Answer describes the answer of a check. The zero Answer is the healthy one: at once,
// status 200, body "ok".
type Answer struct {
	// Status is the HTTP status; 0 means 200.
	Status int
	// Body is sent after the headers; empty means "ok".
	Body string
	// Delay is the time to wait before answering.
	Delay time.Duration
	// Hang is the point where the answer stops for good.
	Hang Hang
}

// Hang is a point where an answer stops for good, with its connection open.
type Hang string

// The points where an answer may hang.
const (
	HangNever   Hang = ""
	HangHeaders Hang = "headers" // nothing is sent
	HangBody    Hang = "body"    // the headers are sent, the body is not
)

// ParseAnswer reads an Answer from the parameters status, body, delay and
// hang. The error names the parameter.
func ParseAnswer(q url.Values) (Answer, error) {
	var a Answer
	for key, values := range q {
		if len(values) != 1 {
			return Answer{}, fmt.Errorf("%s: given %d times, want once", key, len(values))
		}
		value := values[0]
		var err error
		switch key {
		case "status":
			a.Status, err = strconv.Atoi(value)
			if err == nil && (a.Status < 200 || a.Status > 599) {
				err = fmt.Errorf("%d is no final HTTP status, want 200 to 599", a.Status)
			}
		case "body":
			a.Body = value
		case "delay":
			a.Delay, err = time.ParseDuration(value)
		case "hang":
			a.Hang = Hang(value)
			if a.Hang != HangNever && a.Hang != HangHeaders && a.Hang != HangBody {
				err = fmt.Errorf("%q is no point to hang at, want headers or body", value)
			}
		default:
			err = errors.New("unknown parameter, want status, body, delay or hang")
		}
		if err != nil {
			return Answer{}, fmt.Errorf("%s: %w", key, err)
		}
	}
	return a, nil
}

// Server is a stub server. Every response carries the server's name in the
// header X-Served-By, and GET / answers with the name.
type Server struct {
	name string

	mu      sync.Mutex
	answers map[string]Answer // by path
}

// APIServer returns a stub kube-apiserver, healthy.
func APIServer(name string) *Server { return newServer(name, "/readyz", "/livez") }

// Registry returns a stub container registry, healthy.
func Registry(name string) *Server { return newServer(name, "/v2/") }

func newServer(name string, checks ...string) *Server {
	s := &Server{name: name, answers: make(map[string]Answer)}
	for _, path := range checks {
		s.answers[path] = Answer{}
	}
	return s
}

// Set changes the answer of the check at path, from the next request on. It reports
// whether there is such a check.
func (s *Server) Set(path string, a Answer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.answers[path]; !ok {
		return false
	}
	s.answers[path] = a
	return true
}

// SetAll changes the answer of all checks.
func (s *Server) SetAll(a Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for path := range s.answers {
		s.answers[path] = a
	}
}

func (s *Server) answer(path string) (Answer, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.answers[path]
	return a, ok
}

// ServeHTTP answers the checks, GET / and the control requests.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Served-By", s.name)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if check, ok := strings.CutPrefix(r.URL.Path, "/stub/"); ok {
		s.control(w, r, check)
		return
	}
	if r.URL.Path == "/" {
		fmt.Fprintln(w, s.name)
		return
	}
	a, ok := s.answer(r.URL.Path)
	if !ok {
		http.NotFound(w, r)
		return
	}
	a.serve(w, r)
}

func (a Answer) serve(w http.ResponseWriter, r *http.Request) {
	if a.Delay > 0 {
		select {
		case <-time.After(a.Delay):
		case <-r.Context().Done():
			return
		}
	}
	body := cmp.Or(a.Body, "ok")
	if a.Hang == HangHeaders {
		<-r.Context().Done()
		return
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(max(a.Status, http.StatusOK))
	if a.Hang == HangBody {
		// An error means that the client is gone, which ends the wait below.
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return
	}
	_, _ = io.WriteString(w, body)
}

func (s *Server) control(w http.ResponseWriter, r *http.Request, check string) {
	if r.Method != http.MethodPost {
		http.Error(w, "use POST to change a check", http.StatusMethodNotAllowed)
		return
	}
	a, err := ParseAnswer(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	// The registry's check ends in a slash, which is easily forgotten here.
	path := "/" + strings.Trim(check, "/")
	if !s.Set(path, a) && !s.Set(path+"/", a) {
		http.Error(w, "no such check", http.StatusNotFound)
		return
	}
	fmt.Fprintln(w, "done")
}

// Serve answers on l until ctx ends. It then closes all connections at once, hung ones
// too, and returns nil.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	srv := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: 10 * time.Second,
		// Probers reset their connections hundreds of times per second.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	defer context.AfterFunc(ctx, func() { srv.Close() })()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	return nil
}

// Tell sets a check's answer from now on. The control is the address and path of the
// check, as in 127.0.0.1:6443/stub/readyz.
func Tell(ctx context.Context, dial func(ctx context.Context, network, address string) (net.Conn, error), control, parameters string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+control+"?"+parameters, nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the stub answers %s", resp.Status)
	}
	return nil
}
