package stub_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/stub"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start serves s on loopback and returns its base URL.
func start(t *testing.T, s *stub.Server) string {
	t.Helper()
	l := must.Get[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return "http://" + l.Addr().String()
}

type reply struct {
	Status int
	Body   string
	Server string
}

func do(t *testing.T, method, url string) reply {
	t.Helper()
	req := must.Get[*http.Request](t)(http.NewRequestWithContext(t.Context(), method, url, nil))
	resp := must.Get[*http.Response](t)(http.DefaultClient.Do(req))
	defer resp.Body.Close()
	body := must.Get[[]byte](t)(io.ReadAll(resp.Body))
	return reply{resp.StatusCode, strings.TrimSuffix(string(body), "\n"), resp.Header.Get("X-Served-By")}
}

func TestAnswers(t *testing.T) {
	apiserver := start(t, stub.APIServer("m1"))
	registry := start(t, stub.Registry("r1"))
	steps := []struct {
		method, url string
		want        reply
	}{
		{"GET", apiserver + "/", reply{200, "m1", "m1"}},
		{"GET", apiserver + "/readyz", reply{200, "ok", "m1"}},
		{"GET", apiserver + "/livez", reply{200, "ok", "m1"}},
		{"GET", apiserver + "/v2/", reply{404, "404 page not found", "m1"}},
		{"GET", registry + "/", reply{200, "r1", "r1"}},
		{"GET", registry + "/v2/", reply{200, "ok", "r1"}},
		{"GET", registry + "/readyz", reply{404, "404 page not found", "r1"}},

		{"POST", apiserver + "/stub/readyz?status=500&body=etcd+failed", reply{200, "done", "m1"}},
		{"GET", apiserver + "/readyz", reply{500, "etcd failed", "m1"}},
		{"GET", apiserver + "/readyz?verbose", reply{500, "etcd failed", "m1"}},
		{"GET", apiserver + "/livez", reply{200, "ok", "m1"}},
		{"GET", apiserver + "/", reply{200, "m1", "m1"}},
		{"POST", apiserver + "/stub/readyz", reply{200, "done", "m1"}},
		{"GET", apiserver + "/readyz", reply{200, "ok", "m1"}},

		{"POST", registry + "/stub/v2?status=401", reply{200, "done", "r1"}},
		{"GET", registry + "/v2/", reply{401, "ok", "r1"}},
		{"POST", registry + "/stub/v2/?status=429", reply{200, "done", "r1"}},
		{"GET", registry + "/v2/", reply{429, "ok", "r1"}},

		{"GET", apiserver + "/stub/readyz?status=500", reply{405, "use POST to change a check", "m1"}},
		{"POST", apiserver + "/stub/v2", reply{404, "no such check", "m1"}},
		{"POST", apiserver + "/stub/readyz?status=99", reply{400, "status: 99 is no final HTTP status, want 200 to 599", "m1"}},
		{"GET", apiserver + "/readyz", reply{200, "ok", "m1"}},
	}
	for _, step := range steps {
		if diff := cmp.Diff(step.want, do(t, step.method, step.url)); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", step.method, step.url, diff)
		}
	}
}

func TestSetAll(t *testing.T) {
	s := stub.APIServer("m1")
	base := start(t, s)
	s.SetAll(stub.Answer{Status: 503, Body: "down"})
	for _, path := range []string{"/readyz", "/livez"} {
		if got := do(t, "GET", base+path); got.Status != 503 || got.Body != "down" {
			t.Errorf("%s: %+v, want 503 down", path, got)
		}
	}
}

func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stub.APIServer("m1")
		s.Set("/readyz", stub.Answer{Delay: 3 * time.Second})
		began := time.Now()
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/readyz", nil))
		if took := time.Since(began); took != 3*time.Second || w.Code != 200 {
			t.Errorf("status %d after %v, want 200 after 3s", w.Code, took)
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/readyz", nil))
		if took := time.Since(began); took != time.Second {
			t.Errorf("answering went on for %v after the client left", took-time.Second)
		}
	})
}

// A hung answer holds its connection open until the client gives up.
func TestHang(t *testing.T) {
	s := stub.APIServer("m1")
	base := start(t, s)

	s.Set("/readyz", stub.Answer{Hang: stub.HangBody, Status: 500})
	resp := must.Get[*http.Response](t)(http.Get(base + "/readyz"))
	defer resp.Body.Close()
	if resp.StatusCode != 500 || resp.ContentLength != 2 {
		t.Errorf("hang in the body: status %d, length %d, want headers of status 500 and length 2", resp.StatusCode, resp.ContentLength)
	}

	s.Set("/readyz", stub.Answer{Hang: stub.HangHeaders})
	conn := must.Get[net.Conn](t)(net.Dial("tcp", strings.TrimPrefix(base, "http://")))
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /readyz HTTP/1.1\r\nHost: m1\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	must.Do(t, conn.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
	if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("hang before the headers: read %d bytes, %v, want silence", n, err)
	}
}

func TestServeSaysWhyItFailed(t *testing.T) {
	l := must.Get[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	l.Close()
	err := stub.Registry("r1").Serve(t.Context(), l)
	if err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("Serve on a closed listener: %v, want an error with its address", err)
	}
}

func TestParseAnswer(t *testing.T) {
	tests := []struct {
		query string
		want  stub.Answer
		err   string
	}{
		{"", stub.Answer{}, ""},
		{"status=429&body=busy&delay=1.5s&hang=body", stub.Answer{Status: 429, Body: "busy", Delay: 1500 * time.Millisecond, Hang: stub.HangBody}, ""},
		{"hang=headers", stub.Answer{Hang: stub.HangHeaders}, ""},
		{"status=abc", stub.Answer{}, "status:"},
		{"status=600", stub.Answer{}, "status:"},
		{"status=200&status=500", stub.Answer{}, "status: given 2 times"},
		{"delay=10", stub.Answer{}, "delay:"},
		{"hang=forever", stub.Answer{}, "hang:"},
		{"colour=red", stub.Answer{}, "colour: unknown parameter"},
	}
	for _, tt := range tests {
		t.Run(tt.query, func(t *testing.T) {
			q := must.Get[url.Values](t)(url.ParseQuery(tt.query))
			got, err := stub.ParseAnswer(q)
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}
