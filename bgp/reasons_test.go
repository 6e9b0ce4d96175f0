package bgp

import (
	"io"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/herald-vip/herald/api/v1alpha1"
)

// The handler recognises the reasons in GoBGP's real log lines. (TestLostSessionComesBack covers the peer's own text.)
func TestReasonsInTheLog(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer []byte
		want   string
	}{
		{"another ASN", openFrom(t, 64999, "127.0.0.2"), "the peer has another ASN than configured"},
		{"a malformed header", append([]byte(strings.Repeat("\xff", 16)), 0, 5, bgp.BGP_MSG_OPEN), "the peer sent a malformed message: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.2:0")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			s := New(slog.New(slog.DiscardHandler), Options{})
			defer s.Close(t.Context(), "test is over")
			peer := v1alpha1.Peer{Address: addr("127.0.0.2"), LocalAddress: addr("127.0.0.1"), ASN: 64500, HoldTime: metav1.Duration{Duration: 9 * time.Second}, Families: []v1alpha1.Family{v1alpha1.IPv4}}
			peer.Port = uint16(listener.Addr().(*net.TCPAddr).Port)
			if err := s.Apply(t.Context(), Config{ASN: 64512, RouterID: addr("127.0.0.1"), ConnectRetry: 2 * time.Second, Peers: []v1alpha1.Peer{peer}}); err != nil {
				t.Fatal(err)
			}
			conn, err := listener.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_, _ = conn.Write(tt.answer)
			_, _ = io.Copy(io.Discard, conn) // until GoBGP closes the connection
			if got := s.reasons.take(peer.Address); !strings.HasPrefix(got, tt.want) {
				t.Errorf("the reason is %q, want %q", got, tt.want)
			}
		})
	}
}
