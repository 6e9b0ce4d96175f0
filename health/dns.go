package health

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/herald-vip/herald/internal/text"
	"github.com/herald-vip/herald/internal/yaml"
)

// DNS is a question that a name server must answer (RFC 1035). A failure of the server, such as SERVFAIL, is no answer; NXDOMAIN is a wrong one.
type DNS struct {
	// Server is host:port, such as `127.0.0.1:53`. Required.
	Server string `yaml:"server"`
	// Name is the absolute name to look up, such as `kubernetes.default.svc.cluster.local`. Required.
	Name string `yaml:"name"`
	// Type is the record's type. Default: A.
	Type string `yaml:"type" default:"A" want:"A, AAAA, CNAME, MX, NS, PTR, SOA, SRV or TXT"`
	// Answer is a record that must be in the answer, as in a zone file: `192.0.2.1`, or `10 mail.example.org.`. Default: any of the type.
	Answer string `yaml:"answer"`
	// TCP asks over TCP instead of UDP. Default: false.
	TCP bool `yaml:"tcp"`
}

// Validate implements [Check.Validate] for this kind.
func (d *DNS) Validate(r *yaml.Report, p yaml.Path) {
	r.HostPort(p.Field("server"), d.Server)
	if _, ok := dns.IsDomainName(d.Name); d.Name == "" || !ok || strings.ContainsAny(d.Name, " \t;()\"") {
		r.Errorf(p.Field("name"), "want the name to look up, such as example.org, got %s", yaml.Quote(d.Name))
		return
	}
	if rr, err := dns.NewRR(dns.Fqdn(d.Name) + " IN " + d.Type + " " + d.Answer); d.Answer != "" && (err != nil || rr == nil) {
		r.Errorf(p.Field("answer"), "want a record of type %s as in a zone file, got %s", d.Type, yaml.Quote(d.Answer))
	}
}

// dnsProber queries a name server, over a new connection for each probe.
type dnsProber struct {
	server   string
	network  string // "tcp" or "udp"
	asked    dns.Question
	want     dns.RR // nil accepts any record of the type
	timeout  time.Duration
	dial     dialFunc
	idleConn // always empty
}

func (d *DNS) prober(m *Monitor, timeout time.Duration) (prober, error) {
	name := dns.Fqdn(d.Name)
	p := &dnsProber{
		server: d.Server, network: "udp", timeout: timeout, dial: m.dial,
		asked: dns.Question{Name: name, Qtype: dns.StringToType[d.Type], Qclass: dns.ClassINET},
	}
	if d.TCP {
		p.network = "tcp"
	}
	if d.Answer != "" {
		var err error
		if p.want, err = dns.NewRR(name + " IN " + d.Type + " " + d.Answer); err != nil {
			return nil, fmt.Errorf("dns answer: %w", err)
		}
	}
	return named{p, fmt.Sprintf("%s of %s at %s", d.Type, name, d.Server)}, nil
}

func (p *dnsProber) probe(ctx context.Context) outcome {
	start := time.Now()
	raw, err := p.dial(ctx, p.network, p.server)
	if err != nil {
		return explain(&stageError{"no connection", err}, p.timeout)
	}
	query := new(dns.Msg).SetQuestion(p.asked.Name, p.asked.Qtype)
	var reply *dns.Msg
	w := newWire(raw)
	defer w.close()
	err = w.during(ctx, func() (err error) {
		reply, _, err = (&dns.Client{Timeout: p.timeout}).ExchangeWithConnContext(ctx, query, &dns.Conn{Conn: raw})
		return err
	})
	if err != nil {
		return explain(&stageError{"no answer", err}, p.timeout)
	}
	out := judgeReply(reply, p.asked, p.want)
	if out.kind == passed {
		out.reason += fmt.Sprintf(" in %v", round(time.Since(start)))
	}
	return out
}

// judgeReply returns the outcome of a name server's reply. The reply must contain the data of want, or any
// record of the asked type if want is nil. The record's own name is ignored, as it may be the target of an alias.
// NXDOMAIN and other records are wrong answers; SERVFAIL, REFUSED and the like are no answer.
func judgeReply(reply *dns.Msg, asked dns.Question, want dns.RR) outcome {
	if len(reply.Question) != 1 || !reply.Response || reply.Question[0].Qtype != asked.Qtype || !strings.EqualFold(reply.Question[0].Name, asked.Name) {
		return failure("a reply to another question")
	}
	switch reply.Rcode {
	case dns.RcodeSuccess:
	case dns.RcodeNameError:
		return wrongAnswer("NXDOMAIN")
	default:
		return failure(cmp.Or(dns.RcodeToString[reply.Rcode], "an unknown response code"))
	}
	var found []string
	for _, rr := range reply.Answer {
		data := recordData(rr)
		if rr.Header().Rrtype != asked.Qtype || data == "" {
			continue
		}
		if want == nil || equalData(rr, want) {
			return outcome{kind: passed, reason: data}
		}
		found = append(found, data)
	}
	switch {
	case reply.Truncated:
		return failure("truncated: set tcp: true")
	case len(found) == 0:
		return wrongAnswer("no such record")
	}
	return wrongAnswer(text.Short(strings.Join(found, ", "), maxText) + ", want " + recordData(want))
}

// recordData formats a record as in a zone file, without its name, TTL, class and type.
func recordData(rr dns.RR) string {
	return text.Short(strings.TrimPrefix(rr.String(), rr.Header().String()), maxText)
}

// equalData compares two records of the same type and ignores their names.
func equalData(a, b dns.RR) bool {
	b = dns.Copy(b)
	b.Header().Name = a.Header().Name
	return dns.IsDuplicate(a, b)
}
