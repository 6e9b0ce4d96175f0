package health_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/testenv/must"
)

// nameServer answers over UDP and TCP at the same address.
func nameServer(t *testing.T, answer dns.HandlerFunc) string {
	t.Helper()
	listener := must.Get[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	packets := must.Get[net.PacketConn](t)(net.ListenPacket("udp", listener.Addr().String()))
	for _, s := range []*dns.Server{{Listener: listener, Handler: answer}, {PacketConn: packets, Handler: answer}} {
		started, done := make(chan struct{}), make(chan error, 1)
		s.NotifyStartedFunc = func() { close(started) }
		go func() { done <- s.ActivateAndServe() }()
		<-started
		t.Cleanup(func() {
			must.Do(t, s.Shutdown())
			must.Do(t, <-done)
		})
	}
	return listener.Addr().String()
}

// zone answers from records. Names without records get NXDOMAIN; names of response codes get that code.
func zone(t *testing.T, records ...string) dns.HandlerFunc {
	return func(w dns.ResponseWriter, q *dns.Msg) {
		name, _, _ := strings.Cut(q.Question[0].Name, ".")
		reply := new(dns.Msg).SetReply(q)
		switch code, known := dns.StringToRcode[strings.ToUpper(name)]; {
		case known:
			reply.Rcode = code
		case name == "silent":
			return
		case name == "truncated":
			_, overTCP := w.RemoteAddr().(*net.TCPAddr)
			reply.Truncated = !overTCP
		case name == "other":
			reply.Question[0].Name = "another.org."
		case name == "late": // the reply to an earlier query arrives first
			stray := reply.Copy()
			stray.Id++
			stray.Rcode = dns.RcodeServerFailure
			must.Do(t, w.WriteMsg(stray))
		case name == "garbage":
			_, err := w.Write([]byte{byte(q.Id >> 8), byte(q.Id), 0xff, 0xff, 1})
			must.Do(t, err)
			return
		case name != "none":
			reply.Rcode = dns.RcodeNameError
		}
		if !reply.Truncated && reply.Rcode != dns.RcodeServerFailure {
			for _, r := range records {
				rr, err := dns.NewRR(r)
				must.Do(t, err)
				if strings.HasPrefix(rr.Header().Name, strings.ToLower(name)+".") {
					reply.Rcode, reply.Answer = dns.RcodeSuccess, append(reply.Answer, rr)
				}
			}
		}
		must.Do(t, w.WriteMsg(reply))
	}
}

func TestDNS(t *testing.T) {
	server := nameServer(t, zone(t,
		"www.org. A 192.0.2.1", "www.org. A 192.0.2.2", "www.org. AAAA 2001:db8::1",
		"alias.org. CNAME www.org.", "alias.org. A 192.0.2.1", "mx.org. MX 10 mail.org.", `txt.org. TXT "a b"`, "late.org. A 192.0.2.1", "truncated.org. A 192.0.2.1",
	))
	for _, tt := range []struct {
		name, kind, answer string
		passes, not        bool
		reason             string
	}{
		{"www.org", "A", "", true, false, "A of www.org. at " + server + ": 192.0.2.1 in "},
		{"www.org.", "A", "192.0.2.2", true, false, "192.0.2.2"},
		{"WWW.org", "A", "192.0.2.1", true, false, "192.0.2.1"},
		{"www.org", "A", "192.0.2.3", false, true, "192.0.2.1, 192.0.2.2, want 192.0.2.3"},
		{"www.org", "AAAA", "2001:db8:0::1", true, false, "2001:db8::1"},
		{"alias.org", "A", "192.0.2.1", true, false, "192.0.2.1"},
		{"mx.org", "MX", "10 MAIL.org.", true, false, "10 mail.org."},
		{"txt.org", "TXT", `"a b"`, true, false, `"a b"`},
		{"www.org", "TXT", "", false, true, "no such record"},
		{"none.org", "A", "", false, true, "no such record"},
		{"nowhere.org", "A", "", false, true, "NXDOMAIN"},
		{"servfail.org", "A", "", false, false, "SERVFAIL"},
		{"refused.org", "A", "", false, false, "REFUSED"},
		{"silent.org", "A", "", false, false, "no answer within 1s"},
		{"other.org", "A", "", false, false, "a reply to another question"},
		{"garbage.org", "A", "", false, false, "dns: "},
	} {
		for _, overTCP := range []bool{false, true} {
			for _, inverted := range []bool{false, true} {
				want := tt.passes
				if inverted {
					want = tt.not
				}
				passes, reason := probeOnce(t, health.Check{DNS: &health.DNS{Server: server, Name: tt.name, Type: tt.kind, Answer: tt.answer, TCP: overTCP}, Not: inverted}, tt.reason)
				if passes != want || !strings.Contains(reason, tt.reason) {
					t.Errorf("%s %s, TCP %v, not %v: %v %q, want %v …%q…", tt.name, tt.kind, overTCP, inverted, passes, reason, want, tt.reason)
				}
			}
		}
	}
	for _, tt := range []struct {
		name    string
		overTCP bool
		passes  bool
		reason  string
	}{
		{"late.org", false, true, "192.0.2.1"},
		{"truncated.org", false, false, "truncated: set tcp: true"},
		{"truncated.org", true, true, "192.0.2.1"},
	} {
		passes, reason := probeOnce(t, health.Check{DNS: &health.DNS{Server: server, Name: tt.name, Type: "A", TCP: tt.overTCP}}, tt.reason)
		if passes != tt.passes || !strings.Contains(reason, tt.reason) {
			t.Errorf("%s, TCP %v: %v %q, want %v …%q…", tt.name, tt.overTCP, passes, reason, tt.passes, tt.reason)
		}
	}
}

// A refused UDP query is proof as well: the kernel reports that no process listens.
func TestDNSRefused(t *testing.T) {
	packets := must.Get[net.PacketConn](t)(net.ListenPacket("udp", "127.0.0.1:0"))
	server := packets.LocalAddr().String()
	must.Do(t, packets.Close())
	c := health.Check{Name: "dns", DNS: &health.DNS{Server: server, Name: "a", Type: "A"}, Pace: health.Pace{Interval: 10 * time.Millisecond, Timeout: patience, Rise: 1, Fall: 100}}
	next(t, realMonitor(t, c), health.Unhealthy, "A of a. at "+server+": connection refused")
}
