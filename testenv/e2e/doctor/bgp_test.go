//go:build e2e

package doctor

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/doctor"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/stub"
)

// TestDoctorOnCertificates gives an apiserver certificates that clients of the VIP, or
// the check, cannot accept.
func TestDoctorOnCertificates(t *testing.T) {
	t.Parallel()
	p := site.NewPKI(t)
	s := site.NewSession(t, site.Files{"herald/tls.yaml": strings.Replace(site.SpeakerConf([]string{site.VIP4, site.VIP6}, "peers: [{address: 10.0.1.254, asn: 64500, families: [ipv4, ipv6]}]"),
		`http: {url: "http://127.0.0.1:6443/readyz"}`, `http: {url: "https://127.0.0.1:7443/readyz", caFile: /etc/herald/ca.crt, serverName: kubernetes}`, 1)})
	site.Boot(t, s.Lab, "r1")
	listens(t, s.Router("r1"), "10.0.1.1")
	site.Must(t, os.WriteFile(filepath.Join(s.Config, "ca.crt"), p.CA(t), 0o600))
	own := []net.IP{net.IPv4(127, 0, 0, 1)}
	both := append(own, net.ParseIP(site.VIP4), net.ParseIP(site.VIP6))
	ages := time.Now().Add(400 * 24 * time.Hour)
	for _, test := range []struct {
		name string
		cert x509.Certificate
		want []symptom
	}{
		{"good", x509.Certificate{DNSNames: []string{"kubernetes"}, IPAddresses: both, NotAfter: ages}, []symptom{
			{doctor.OK, "certificate", "valid until"},
			{doctor.OK, "certificate", "signed by caFile /etc/herald/ca.crt, for kubernetes"},
			{doctor.OK, "certificate", "can connect to 10.99.0.10 and fd00:99::10"},
		}},
		{"about to expire", x509.Certificate{DNSNames: []string{"kubernetes"}, IPAddresses: both, NotAfter: time.Now().Add(time.Hour / 2)}, []symptom{
			{doctor.Warning, "certificate", "expires on"},
		}},
		{"expired", x509.Certificate{DNSNames: []string{"kubernetes"}, IPAddresses: both, NotAfter: time.Now().Add(-time.Hour)}, []symptom{
			{doctor.Blocker, "certificate", "expired on"},
			{doctor.Warning, "check", "certificate expired on"},
			{doctor.OK, "certificate", "signed by caFile"},
		}},
		{"without the VIPs", x509.Certificate{DNSNames: []string{"kubernetes"}, IPAddresses: own, NotAfter: ages}, []symptom{
			{doctor.Blocker, "certificate", "not for 10.99.0.10 and fd00:99::10, the VIP control-plane"},
		}},
		{"for other names", x509.Certificate{DNSNames: []string{"registry"}, IPAddresses: both, NotAfter: ages}, []symptom{
			{doctor.Blocker, "certificate", "not for kubernetes but for registry"},
			{doctor.Warning, "check", "set serverName"},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.cert.Subject = pkix.Name{CommonName: test.name}
			test.cert.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
			defer site.ServeTLS(t, s.Node("s"), ":7443", stub.APIServer("s"), p.Server(t, "server", &test.cert))()
			shows(t, examine(t, s.Node("s"), "/etc/herald/tls.yaml"), test.want...)
		})
	}
}

// TestDoctorOnPeers examines a speaker before its routers are configured, afterwards,
// and while it runs.
func TestDoctorOnPeers(t *testing.T) {
	t.Parallel()
	const file = "/etc/herald/herald.yaml"
	conf := site.SpeakerConf([]string{site.VIP4}, `peers:
- {address: 10.0.1.254, asn: 64500, bfd: {}}
- {address: 10.0.2.254, asn: 64500}`)
	s := site.NewSession(t, site.Files{
		"herald/herald.yaml": conf,
		"herald/asn.yaml":    strings.Replace(conf, "asn: 64512", "asn: 64513", 1),
		"herald/secret.yaml": strings.Replace(conf, "{address: 10.0.2.254, ", "{address: 10.0.2.254, passwordFile: /etc/herald/password, ", 1),
		"herald/password":    "secret\n",
		"herald/wrong.yaml":  "vips: []\n",
	})
	if _, err := site.Run(t, s.Node("s"), "herald", "doctor", "--config", "/etc/herald/wrong.yaml"); exitCode(err) != 2 {
		t.Errorf("a file with mistakes: %v, want exit code 2", err)
	}
	shows(t, examine(t, s.Node("s"), file),
		symptom{doctor.Blocker, "peer", "10.0.1.254 AS 64500: 10.0.1.254 refuses TCP port 179"},
		symptom{doctor.Blocker, "peer", "10.0.2.254 AS 64500: 10.0.2.254 refuses TCP port 179"},
		symptom{doctor.OK, "port", "BFD 0.0.0.0:3784/udp: free"})

	site.Boot(t, s.Lab, "r1", "r2")
	listens(t, s.Router("r1"), "10.0.1.1")
	listens(t, s.Router("r2"), "10.0.2.1")
	for range 5 { // it leaves no state that would disturb a router
		shows(t, examine(t, s.Node("s"), file), symptom{doctor.OK, "peer", "10.0.1.254 AS 64500: accepts a session"}, symptom{doctor.OK, "peer", "10.0.2.254 AS 64500: accepts a session"})
	}
	shows(t, examine(t, s.Node("s"), "/etc/herald/asn.yaml"),
		symptom{doctor.Blocker, "peer", "10.0.1.254 AS 64500: the peer expects another ASN than 64513"},
		symptom{doctor.Blocker, "peer", "10.0.2.254 AS 64500: the peer expects another ASN than 64513"})
	shows(t, examine(t, s.Node("s"), "/etc/herald/secret.yaml"),
		symptom{doctor.Warning, "peer", "10.0.2.254 does not answer: the host is down, or a filter drops port 179, or its password differs from passwordFile"})

	site.Boot(t, s.Lab, "s")
	s.Established(t, "r1", "10.0.1.1", "10.0.1.254")
	s.Established(t, "r2", "10.0.2.1", "10.0.2.254")
	shows(t, examine(t, s.Node("s"), file),
		symptom{doctor.Warning, "peer", "10.0.1.254 AS 64500: BFD is down: no packet from 10.0.1.254"}, // FRR has none configured
		symptom{doctor.OK, "peer", "10.0.2.254 AS 64500: the session is established"},
		symptom{doctor.OK, "vip", "goes on lo"},
		symptom{doctor.OK, "port", "BFD 0.0.0.0:3784/udp: Herald's own"})
}

// listens waits until a router is ready for a session with its neighbour.
func listens(t *testing.T, r site.Router, name string) {
	t.Helper()
	site.Eventually(t, site.Soon, func() error {
		n, err := r.Neighbor(t, name)
		return site.Check(err, n.State == "Idle", "%s has %s idle", r.Name(), name)
	})
}
