package health

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/miekg/dns"

	"github.com/herald-vip/herald/testenv/must"
)

func TestBodyReason(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status int
		body   string
		want   string
	}{
		{"kube-apiserver", 500, "[+]ping ok\n[-]etcd failed: reason withheld\n[+]log ok\nreadyz check failed\n", "500: [-]etcd failed"},
		{"two failed checks", 500, "[-]etcd failed: reason withheld\n[-]poststarthook/rbac failed: not finished\n", "500: [-]etcd failed, [-]poststarthook/rbac failed: not finished"},
		{"Kubernetes status", 500, "{\n  \"kind\": \"Status\",\n  \"message\": \"etcd is gone\"\n}", "500: etcd is gone"},
		{"plain text", 503, "\n\n  upstream is gone  \nmore\n", "503: upstream is gone"},
		{"no line end", 503, "gone", "503: gone"},
		{"empty", 503, "", "503: Service Unavailable"},
		{"blank", 502, " \r\n\t\n", "502: Bad Gateway"},
		{"HTML", 502, "<html>\n<h1>502 Bad Gateway</h1>\n</html>", "502: Bad Gateway"},
		{"binary", 500, "\x00\x01\xfe", "500: Internal Server Error"},
		{"control characters", 500, "bad \x1b[31mred\x07\u202e", "500: bad .[31mred.."},
		{"status without a name", 599, "", "599"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := bodyReason(tt.status, []byte(tt.body)); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestExplain(t *testing.T) {
	dial := func(err error) error {
		return &stageError{"no connection", &net.OpError{Op: "dial", Net: "tcp", Err: err}}
	}
	for _, tt := range []struct {
		name string
		err  error
		kind kind
		want string
	}{
		{"refused", dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)), refused, "connection refused"},
		{"name server refused", dial(&net.DNSError{Err: "refused", Name: "m1", UnwrapErr: syscall.ECONNREFUSED}), failed, "lookup m1: refused"},
		{"name server silent", dial(&net.DNSError{Err: "i/o timeout", Name: "m1", IsTimeout: true}), failed, "m1 not resolved within 500ms"},
		{"deadline", dial(context.DeadlineExceeded), failed, "no connection within 500ms"},
		{"read deadline", &stageError{"no answer", os.ErrDeadlineExceeded}, failed, "no answer within 500ms"},
		{"reset", &stageError{"no answer", os.NewSyscallError("read", syscall.ECONNRESET)}, cut, "connection reset by the server"},
		{"broken pipe", &stageError{"no answer", syscall.EPIPE}, cut, "connection reset by the server"},
		{"end", &stageError{"no answer", io.ErrUnexpectedEOF}, cut, "connection closed without a whole answer"},
		{"unreachable", dial(os.NewSyscallError("connect", syscall.ENETUNREACH)), failed, "network is unreachable"},
		{"out of memory", dial(os.NewSyscallError("socket", syscall.ENOMEM)), failed, "check's own: cannot allocate memory"},
		{"out of buffers", dial(os.NewSyscallError("connect", syscall.ENOBUFS)), failed, "check's own: no buffer space available"},
		{"out of descriptors", dial(os.NewSyscallError("socket", syscall.EMFILE)), failed, "check's own: too many open files"},
		{"out of ports", dial(os.NewSyscallError("connect", syscall.EADDRNOTAVAIL)), failed, "check's own: cannot assign requested address"},
		{"not HTTP", &stageError{"no answer", fmt.Errorf("malformed HTTP response %q", "SSH-2.0")}, failed, `malformed HTTP response "SSH-2.0"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out := explain(tt.err, 500*time.Millisecond)
			if out.kind != tt.kind || out.reason != tt.want {
				t.Errorf("got %d %q, want %d %q", out.kind, out.reason, tt.kind, tt.want)
			}
			if slow := strings.HasPrefix(tt.want, "no ") && strings.HasSuffix(tt.want, "within 500ms"); out.slow != slow {
				t.Errorf("%q is slow: %t, want %t", out.reason, out.slow, slow)
			}
		})
	}
}

// A slow name service is not the server's fault.
func TestExplainSilentNameService(t *testing.T) {
	silent := func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
	dialer := net.Dialer{Resolver: &net.Resolver{PreferGo: true, Dial: silent}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := dialer.DialContext(ctx, "tcp", "m1.example.:6443")
	if got := explain(&stageError{"no connection", err}, time.Millisecond).reason; got != "m1.example. not resolved within 1ms" {
		t.Errorf("got %q", got)
	}
}

func TestValidityWarning(t *testing.T) {
	const day = 24 * time.Hour
	now := time.Date(2026, 1, 10, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name       string
		life, left time.Duration
		want       string
	}{
		{"far from it", 365 * day, 8 * day, ""},
		{"days", 365 * day, 5*day + time.Hour, "expires in 5 days (2026-01-15)"},
		{"hours", 365 * day, 47 * time.Hour, "expires in 47 h (2026-01-12)"},
		{"minutes", 365 * day, 30 * time.Minute, "expires within the hour (2026-01-10)"},
		{"expired", 365 * day, -day, "expired on 2026-01-09"},
		{"short-lived, fresh", day, 6 * time.Hour, ""},
		{"short-lived, not renewed", day, 2 * time.Hour, "expires in 2 h (2026-01-10)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			until := now.Add(tt.left)
			if got := (validity{until.Add(-tt.life), until}).warning(now); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	if got := (validity{}).warning(now); got != "" {
		t.Errorf("no certificate: %q", got)
	}
}

func FuzzBodyReason(f *testing.F) {
	f.Add(500, []byte("[+]ping ok\n[-]etcd failed: reason withheld\nreadyz check failed\n"))
	f.Add(503, []byte("<html>\r\n<h1>gone</h1>"))
	f.Add(429, []byte("Too many requests, please try again later.\n"))
	f.Add(0, []byte("\x00\xff\u202e\xe2\x80"))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		got := bodyReason(status, body)
		text := strings.TrimPrefix(got, fmt.Sprint(status))
		if len(got) == len(text) {
			t.Fatalf("%q does not start with the status", got)
		}
		if n := utf8.RuneCountInString(strings.TrimPrefix(text, ": ")); n > 120 {
			t.Fatalf("%d characters: %q", n, got)
		}
		if i := strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
			t.Fatalf("not printable at %d: %q", i, got)
		}
	})
}

// scripted is a connection with a fixed answer of the server.
type scripted struct {
	net.Conn // nil: nothing else may be called
	says     *strings.Reader
	read     int
}

func (c *scripted) Read(p []byte) (int, error) {
	n, err := c.says.Read(p)
	c.read += n
	return n, err
}
func (*scripted) Write(p []byte) (int, error)     { return len(p), nil }
func (*scripted) Close() error                    { return nil }
func (*scripted) SetDeadline(time.Time) error     { return nil }
func (*scripted) SetReadDeadline(time.Time) error { return nil }

// With any answer, a probe ends, reads a bounded amount and gives its reason
// in one short printable line.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\n",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
		"HTTP/1.0 500 Oops\r\n\r\n[-]etcd failed: reason withheld\n",
		"HTTP/1.1 302 Found\r\nLocation: \x1bhttps://elsewhere/\r\n\r\n",
		"HTTP/1.1 101 Switching Protocols\r\n\r\n",
		"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 4\r\n\r\nbusy",
		"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
		"SSH-2.0-OpenSSH_9.2\r\n",
		"\x16\x03\x01\x02\x00\x01",
		"",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, says string) {
		conn := &scripted{says: strings.NewReader(says)}
		dial := func(context.Context, string, string) (net.Conn, error) { return conn, nil }
		p := must.Get[prober](t)((&HTTP{URL: "http://127.0.0.1/x"}).prober(&Monitor{dial: dial}, time.Second))
		out := p.probe(t.Context())
		p.close() // waits for the watch, which reads further
		if out.kind == refused {
			t.Fatalf("an answer counted as a refusal: %q", out.reason)
		}
		if conn.read > maxAnswer+64<<10 {
			t.Fatalf("read %d bytes", conn.read)
		}
		if n := utf8.RuneCountInString(out.reason); n > 250 || n == 0 {
			t.Fatalf("%d characters: %q", n, out.reason)
		}
		if strings.ContainsFunc(out.reason, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Fatalf("not printable: %q", out.reason)
		}
	})
}

// Any reply of a name server gives a reason of one bounded line.
func FuzzReply(f *testing.F) {
	asked := dns.Question{Name: "example.org.", Qtype: dns.TypeA, Qclass: dns.ClassINET}
	want, err := dns.NewRR("example.org. A 192.0.2.1")
	if err != nil {
		f.Fatal(err)
	}
	for _, data := range []string{"A 192.0.2.1", "A 192.0.2.2", "TXT \"\\000\\027\"", "CNAME a.", "TYPE1 \\# 0"} {
		reply := new(dns.Msg).SetReply(&dns.Msg{Question: []dns.Question{asked}})
		if rr, err := dns.NewRR("example.org. " + data); err == nil {
			reply.Answer = append(reply.Answer, rr)
		}
		packed, err := reply.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(packed, true)
		f.Add(packed[:len(packed)-1], false)
	}
	f.Fuzz(func(t *testing.T, packet []byte, any bool) {
		reply := new(dns.Msg)
		if reply.Unpack(packet) != nil {
			return
		}
		wanted := want
		if any {
			wanted = nil
		}
		out := judgeReply(reply, asked, wanted)
		if out.kind != passed && out.kind != failed && out.kind != negative {
			t.Errorf("outcome of a reply is %v", out.kind)
		}
		if n := len([]rune(out.reason)); n == 0 || n > 300 || strings.ContainsAny(out.reason, "\r\n\x1b") {
			t.Errorf("reason is %q", out.reason)
		}
	})
}

// Any output of a command gives a reason of one bounded line.
func FuzzFirstLine(f *testing.F) {
	for _, s := range []string{"", "\n", "ok\n", "\n \n a\tb \r\nc", "\x1b[31m\x00\xff", strings.Repeat("long ", 1000)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, output []byte) {
		line := firstLine(output)
		if len([]rune(line)) > maxText || strings.ContainsAny(line, "\r\n\x1b\x00") {
			t.Errorf("%q", line)
		}
	})
}
