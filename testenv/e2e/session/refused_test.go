//go:build e2e

package session

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/e2e/site"
)

// TestRefused misconfigures one of two peers in every way: its session never comes up,
// status reports the expected reason, and the other session is untouched.
func TestRefused(t *testing.T) {
	const right = "\n neighbor 10.0.1.1 remote-as 64512\n neighbor 10.0.1.1 timers connect 1"
	for _, test := range []struct {
		name string
		// frr is r1's bgp section; r1 is not booted if it is empty. peer is the speaker's entry for the
		// peer.
		frr, peer string
		// reason is a regular expression for the reason in status.
		reason string
		// oneSided marks a session that herald may consider up: it receives from the peer,
		// but not vice versa.
		oneSided bool
	}{
		{"wrong password", right + "\n neighbor 10.0.1.1 password sesame", `{address: 10.0.1.254, asn: 64500, passwordFile: /etc/herald/password}`, `10\.0\.1\.254 does not answer.*its password differs from passwordFile`, false},
		{"password that the peer does not have", right, `{address: 10.0.1.254, asn: 64500, passwordFile: /etc/herald/password}`, `its password differs from passwordFile`, false},
		{"password that only the peer has", right + "\n neighbor 10.0.1.1 password sesame", `{address: 10.0.1.254, asn: 64500}`, `10\.0\.1\.254 does not answer.*it expects a password`, false},
		{"wrong ASN of the peer", right, `{address: 10.0.1.254, asn: 64501}`, `the peer's ASN is 64500, not 64501`, false},
		{"wrong ASN at the peer", "\n neighbor 10.0.1.1 remote-as 64513", `{address: 10.0.1.254, asn: 64500}`, `expects another ASN than 64512.*(?i)bad peer as`, false},
		{"unknown to the peer", "\n neighbor 10.0.1.77 remote-as 64512", `{address: 10.0.1.254, asn: 64500}`, `10\.0\.1\.254 closes the connection from 10\.0\.1\.1 without a NOTIFICATION.*neighbor`, false},
		{"GTSM that only the peer has", right + "\n neighbor 10.0.1.1 ttl-security hops 1", `{address: 10.0.1.254, asn: 64500}`, `hold timer expired|accepts the connection but does not answer an OPEN`, true},
		{"GTSM that the peer does not have", right, `{address: 10.0.1.254, asn: 64500, ttlSecurity: 1}`, `10\.0\.1\.254 accepts the connection but does not answer.*ttlSecurity`, false},
		{"no family in common", right + "\n address-family ipv4 unicast\n  no neighbor 10.0.1.1 activate\n exit-address-family\n address-family ipv6 unicast\n  neighbor 10.0.1.1 activate", `{address: 10.0.1.254, asn: 64500}`, `the peer refuses`, false},
		{"no BGP at the peer", "", `{address: 10.0.1.254, asn: 64500}`, `10\.0\.1\.254 refuses TCP port 179`, false},
		{"an unused address", "", `{address: 10.0.1.77, asn: 64500}`, `10\.0\.1\.77 is unreachable`, false},
		// FRR sends router advertisements only with an unnumbered session
		{"no router on the link", right, `{interface: eth1, asn: 64500}`, `no router advertisement received on eth1`, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := site.NewSession(t, site.Files{
				"r1.conf":            site.RouterConf(64500, test.frr),
				"herald/herald.yaml": site.SpeakerConf([]string{site.VIP4}, "peers:\n- "+test.peer+"\n- {address: 10.0.2.254, asn: 64500}"),
				"herald/password":    "abracadabra\n",
			})
			site.Boot(t, s.Lab, "r2", "s")
			if test.frr != "" {
				site.Boot(t, s.Lab, "r1")
			}
			s.Established(t, "r2", "10.0.2.1", "10.0.2.254")

			s.Shows(t, func(status admin.Status) error {
				for _, p := range status.Peers {
					if p.Name == "10.0.2.254" {
						continue
					}
					if !test.oneSided && (p.State == "established" || p.Drops > 0 || len(p.Advertised) > 0) {
						t.Fatalf("the session came up: %+v", p)
					}
					return site.ErrorIf(!regexp.MustCompile(test.reason).MatchString(p.Reason),
						"status has the reason %q, want %q", p.Reason, test.reason)
				}
				return errors.New("the peer is not in status")
			})

			if strings.Contains(test.frr, "10.0.1.1 ") {
				n, err := s.Router("r1").Neighbor(t, "10.0.1.1")
				site.Must(t, err)
				if n.Established != 0 || n.State == "Established" {
					t.Errorf("FRR reports that the session was up %d times and is %s now", n.Established, n.State)
				}
			}
			onceUp(t, s, "r2", "10.0.2.1")
			s.Path(t, "r2", site.VIP4)
		})
	}
}
