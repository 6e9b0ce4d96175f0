package doctor

import (
	"crypto/x509"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/doctor/facts"
	"github.com/herald-vip/herald/health"
)

// examineCertificates examines the server and client certificates of https checks. Clients of the
// VIPs see the same server certificates.
func examineCertificates(c *config.Config, f *facts.Facts, out *findings) {
	for _, k := range c.Checks {
		if k.HTTP == nil {
			continue
		}
		e := f.Endpoints[k.Name]
		if len(e.Chain) > 0 {
			subject := k.Name + " " + e.Address
			examineValidity(subject, e.Chain[0], f.Now, out)
			if !k.HTTP.InsecureSkipVerify {
				examineChain(subject, k.HTTP.CAFile, e, f.Now, out)
			}
			examineNames(c, k, subject, e, out)
		}
		if e.Client != nil {
			examineValidity(k.Name+" "+k.HTTP.ClientCertFile, e.Client, f.Now, out)
		}
	}
}

func examineValidity(subject string, cert *x509.Certificate, now time.Time, out *findings) {
	const renew = "renew it; with kubeadm: kubeadm certs renew all, and restart the control plane's pods"
	date := func(t time.Time) string { return t.UTC().Format(time.DateOnly) }
	switch left := cert.NotAfter.Sub(now); {
	case now.Before(cert.NotBefore):
		out.blocker(subject, fmt.Sprintf("valid only from %s", cert.NotBefore.UTC().Format(time.RFC3339)),
			fmt.Sprintf("It is %s here: this node's clock is behind, or the issuer's clock is ahead.", now.UTC().Format(time.RFC3339)), "timedatectl on both hosts")
	case left <= 0:
		out.blocker(subject, "expired on "+date(cert.NotAfter), "Clients that verify it cannot connect.", renew)
	case left < min(30*24*time.Hour, cert.NotAfter.Sub(cert.NotBefore)/3): // a third of a short lifetime
		out.warning(subject, fmt.Sprintf("expires on %s, %s", date(cert.NotAfter), remaining(left)), "After that, clients that verify it cannot connect.", renew)
	default:
		out.fine(subject, "valid until "+date(cert.NotAfter))
	}
}

// remaining formats d in days, or below two days in hours.
func remaining(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("in %d days", d/(24*time.Hour))
	case d >= time.Hour:
		return fmt.Sprintf("in %d h", d/time.Hour)
	}
	return "within the hour"
}

// examineChain examines the issuer of a certificate and whether it has the server name of the check.
// It ignores the time, which examineValidity examines.
func examineChain(subject, caFile string, e facts.Endpoint, now time.Time, out *findings) {
	leaf := e.Chain[0]
	if now.Before(leaf.NotBefore) || now.After(leaf.NotAfter) {
		now = leaf.NotAfter
	}
	authority := "caFile " + caFile
	if caFile == "" {
		authority = "an authority of the system"
	}
	intermediates := x509.NewCertPool()
	for _, cert := range e.Chain[1:] {
		intermediates.AddCert(cert)
	}
	const why = "The check fails, and the VIP is not announced."
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: e.Roots, Intermediates: intermediates, CurrentTime: now}); err != nil {
		out.blocker(subject, fmt.Sprintf("not signed by %s: %v", authority, err), why, "set caFile to the certificate of the issuer; for kubeadm /etc/kubernetes/pki/ca.crt")
	} else if err := leaf.VerifyHostname(e.ServerName); err != nil {
		out.blocker(subject, fmt.Sprintf("not for %s but for %s", e.ServerName, list(names(leaf))), why, "set serverName to one of these")
	} else {
		out.fine(subject, "signed by "+authority+", for "+e.ServerName)
	}
}

// examineNames checks that the certificate has the addresses of the VIPs and balancers, or DNS names
// that resolve to them.
func examineNames(c *config.Config, k health.Check, subject string, e facts.Endpoint, out *findings) {
	for _, front := range facts.Fronts(c, k) {
		var found, missing []string
		for _, addr := range front.Addresses {
			switch name := e.NameOf(addr); {
			case name != "":
				if !slices.Contains(found, name) {
					found = append(found, name)
				}
			case !slices.Contains(missing, addr.String()):
				missing = append(missing, addr.String())
			}
		}
		if len(missing) == 0 {
			out.fine(subject, "clients of the "+front.Kind+" "+front.Name+" can connect to "+list(found))
			continue
		}
		severity, cure := Warning, "issue a certificate with the subject alternative names "+list(missing)
		if apiserver(k) {
			severity = Blocker
			cure = fmt.Sprintf("for kubeadm: apiServer: {certSANs: [%s]} in its ClusterConfiguration, remove pki/apiserver.crt and .key, kubeadm init phase certs apiserver --config FILE, restart kube-apiserver",
				strings.Join(missing, ", "))
		}
		out.add(severity, subject, fmt.Sprintf("not for %s, the %s %s", list(missing), front.Kind, front.Name),
			"Clients that connect to the "+front.Kind+" by its address refuse the certificate.", cure)
	}
}

// apiserver reports whether the URL of k is a health endpoint of a kube-apiserver.
func apiserver(k health.Check) bool {
	u, err := url.Parse(k.HTTP.URL)
	if err != nil {
		return false
	}
	first, _, _ := strings.Cut(strings.Trim(u.Path, "/"), "/")
	return u.Scheme == "https" && slices.Contains([]string{"readyz", "livez", "healthz"}, first)
}

// names returns the subject alternative names of cert, or "no name".
func names(cert *x509.Certificate) []string {
	out := slices.Clone(cert.DNSNames)
	for _, ip := range cert.IPAddresses {
		out = append(out, ip.String())
	}
	if len(out) == 0 {
		out = []string{"no name"}
	}
	return out
}
