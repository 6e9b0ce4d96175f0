package bgp

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/herald-vip/herald/api/v1alpha1"
)

func serialize(t testing.TB, m *bgp.BGPMessage, err error) []byte {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	b, err := m.Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func openFrom(t testing.TB, asn uint32, id string) []byte {
	m, err := bgp.NewBGPOpenMessage(bgp.AS_TRANS, 9, addr(id), []bgp.OptionParameterInterface{
		bgp.NewOptionParameterCapability([]bgp.ParameterCapabilityInterface{bgp.NewCapFourOctetASNumber(asn)}),
	})
	return serialize(t, m, err)
}

func notification(t testing.TB, code, subcode uint8, data []byte) []byte {
	return serialize(t, bgp.NewBGPNotificationMessage(code, subcode, data), nil)
}

func TestConverse(t *testing.T) {
	c := Config{ASN: 64512, RouterID: addr("10.0.1.1")}
	p := v1alpha1.Peer{ASN: 4200000000}
	keepalive := serialize(t, bgp.NewBGPKeepAliveMessage(), nil)
	open := &v1alpha1.Peer{ASN: v1alpha1.External}
	shutdown := append([]byte{11}, "maintenance\x1b["...)
	tests := []struct {
		name   string
		answer [][]byte
		peer   *v1alpha1.Peer // nil means p
		want   string
		err    error
	}{
		{name: "agrees", answer: [][]byte{openFrom(t, uint32(p.ASN), "10.0.1.254"), keepalive}},
		{name: "wrong ASN there", answer: [][]byte{openFrom(t, 64501, "10.0.1.254")}, want: "the peer's ASN is 64501, not 4200000000 as configured"},
		{name: "own router ID", answer: [][]byte{openFrom(t, uint32(p.ASN), "10.0.1.1")}, want: "this node's router ID 10.0.1.1"},
		{name: "open ASN", peer: open, answer: [][]byte{openFrom(t, 64501, "10.0.1.254"), keepalive}},
		{name: "open ASN is the own", peer: open, answer: [][]byte{openFrom(t, 64512, "10.0.1.254")}, want: "the peer's ASN is 64512 like this node's"},
		{name: "open ASN is none", peer: open, answer: [][]byte{openFrom(t, 0, "10.0.1.254")}, want: "the peer's ASN is 0: give a number from 1 to 4294967294"},
		{name: "open ASN is AS_TRANS", peer: open, answer: [][]byte{openFrom(t, 23456, "10.0.1.254")}, want: "the peer's ASN is 23456: 23456 is reserved"},
		{name: "wrong ASN here", answer: [][]byte{openFrom(t, uint32(p.ASN), "10.0.1.254"), notification(t, 2, 2, nil)}, want: "the peer expects another ASN than 64512"},
		{name: "shut down there", answer: [][]byte{notification(t, 6, 2, shutdown)}, want: `the peer says "maintenance"`},
		{name: "shut down with a lie about the length", answer: [][]byte{notification(t, 6, 2, []byte{200, 'x'})}, want: `the peer says "x"`},
		{name: "cease without a text", answer: [][]byte{notification(t, 6, 5, nil)}, want: "the peer refuses: "},
		{name: "cease because BFD is down", answer: [][]byte{notification(t, 6, 10, nil)}, want: "the peer refuses: code 6(cease) subcode 10(bfd down)"},
		{name: "silent", answer: [][]byte{openFrom(t, uint32(p.ASN), "10.0.1.254")}, err: io.EOF},
		{name: "not BGP", answer: [][]byte{[]byte("SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n")}, err: errNotBGP},
		{name: "length below the header's", answer: [][]byte{append(bytes.Repeat([]byte{0xff}, 16), 0, 1, 4)}, err: errNotBGP},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := converse(bytes.NewReader(bytes.Join(tt.answer, nil)), c, *cmp.Or(tt.peer, &p))
			if !errors.Is(err, tt.err) {
				t.Fatalf("error %v, want %v", err, tt.err)
			}
			if !strings.Contains(got, tt.want) || tt.want == "" && got != "" {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if strings.ContainsRune(got, '\x1b') {
				t.Errorf("control characters pass through: %q", got)
			}
		})
	}
}

// FuzzConverse checks that an examination ends without a panic for any answer, and with a sentence or an error.
func FuzzConverse(f *testing.F) {
	f.Add(openFrom(f, 64500, "10.0.1.254"))
	f.Add(notification(f, 6, 2, []byte{3, 'b', 'y', 'e'}))
	f.Add(append(openFrom(f, 64500, "10.0.1.254"), serialize(f, bgp.NewBGPKeepAliveMessage(), nil)...))
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		for _, p := range []v1alpha1.Peer{{ASN: 64500}, {ASN: v1alpha1.External}} {
			reason, err := converse(bytes.NewReader(answer), Config{ASN: 64512, RouterID: addr("10.0.1.1")}, p)
			if len(reason) > 512 {
				t.Errorf("a reason of %d bytes", len(reason))
			}
			_ = err
		}
	})
}

func TestDiagnoseExplainsSocketErrors(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := uint16(listener.Addr().(*net.TCPAddr).Port)
	c := Config{ASN: 64512, RouterID: addr("10.0.1.1")}
	p := v1alpha1.Peer{Address: addr("127.0.0.1"), ASN: 64500, Port: port, HoldTime: metav1.Duration{Duration: 3 * time.Second}, Families: []v1alpha1.Family{v1alpha1.IPv4}}

	hangUp := make(chan struct{})
	go func() {
		defer close(hangUp)
		conn, err := listener.Accept()
		if err == nil {
			conn.Close()
		}
	}()
	if got := diagnose(t.Context(), c, p, p.Address, ""); !strings.Contains(got, "is this node a neighbor there?") {
		t.Errorf("hung up: %q", got)
	}
	<-hangUp
	listener.Close()
	if got := diagnose(t.Context(), c, p, p.Address, ""); !strings.Contains(got, "refuses TCP port") {
		t.Errorf("refused: %q", got)
	}
}

func TestExplainDial(t *testing.T) {
	timeout := &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}
	withPassword := explainDial(v1alpha1.Peer{Port: 179, Password: "x"}, addr("10.0.1.254"), timeout)
	if !strings.Contains(withPassword, "its password differs from passwordFile") {
		t.Errorf("timeout with a password: %q", withPassword)
	}
	if got := explainDial(v1alpha1.Peer{Port: 179}, addr("10.0.1.254"), timeout); !strings.Contains(got, "it expects a password") {
		t.Errorf("timeout without a password: %q", got)
	}
}

// FuzzUpdate checks that GoBGP reads any UPDATE without a panic. An error must be a MessageError, because GoBGP's
// sessions panic on other errors.
func FuzzUpdate(f *testing.F) {
	hop, err := bgp.NewPathAttributeNextHop(addr("10.0.1.254"))
	if err != nil {
		f.Fatal(err)
	}
	route, err := bgp.NewIPAddrPrefix(netip.MustParsePrefix("192.0.2.0/24"))
	if err != nil {
		f.Fatal(err)
	}
	path := bgp.NewPathAttributeAsPath([]bgp.AsPathParamInterface{bgp.NewAs4PathParam(bgp.BGP_ASPATH_ATTR_TYPE_SEQ, []uint32{64500})})
	attrs := []bgp.PathAttributeInterface{bgp.NewPathAttributeOrigin(0), path, hop, bgp.NewPathAttributeCommunities([]uint32{1})}
	for _, old := range []bool{false, true} {
		f.Add(serialize(f, bgp.NewBGPUpdateMessage(nil, attrs, []bgp.PathNLRI{{NLRI: route}}), nil)[bgp.BGP_HEADER_LENGTH:], old)
		f.Add(serialize(f, bgp.NewBGPUpdateMessage([]bgp.PathNLRI{{NLRI: route}}, nil, nil), nil)[bgp.BGP_HEADER_LENGTH:], old)
	}
	families := map[bgp.Family]bgp.BGPAddPathMode{bgp.RF_IPv4_UC: 0, bgp.RF_IPv6_UC: 0}
	f.Fuzz(func(t *testing.T, body []byte, twoOctetASN bool) {
		header := &bgp.BGPHeader{Type: bgp.BGP_MSG_UPDATE, Len: uint16(bgp.BGP_HEADER_LENGTH + len(body))}
		m, err := bgp.ParseBGPBody(header, body, &bgp.MarshallingOption{AddPath: families, Use2ByteAS: twoOctetASN, ExtendedMessage: true})
		if err == nil {
			_, err = bgp.ValidateUpdateMsg(m.Body.(*bgp.BGPUpdate), families, true, false, false)
		}
		if _, ok := err.(*bgp.MessageError); err != nil && !ok {
			t.Errorf("an error that a session would panic on: %v", err)
		}
	})
}
