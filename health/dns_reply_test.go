package health

import (
	"strings"
	"testing"

	"github.com/miekg/dns"
)

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
