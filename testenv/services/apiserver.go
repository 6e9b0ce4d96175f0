package services

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/herald-vip/herald/testenv/stub"
)

// The users that the API server knows by their tokens. Both may do anything; they
// have names of their own for the audit log to tell them apart.
const (
	adminUser     = "harness"
	announcerUser = "announcer"
)

// tokens is the API server's file of tokens.
func tokens() string {
	var b strings.Builder
	for _, user := range []string{adminUser, announcerUser} {
		fmt.Fprintf(&b, "%s-token,%s,%s,\"system:masters\"\n", user, user, user)
	}
	return b.String()
}

// auditPolicy has the API server note the requests of the announcer, without their contents.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- {level: Metadata, users: [` + announcerUser + `]}
- {level: None}
`

// apiServerFlags are those of kube-apiserver, whose /etc/kubernetes is the folder of
// the PKI. There is nobody who would make service accounts, or take taints from nodes.
func apiServerFlags() []string {
	return []string{
		"--bind-address=0.0.0.0", "--advertise-address=" + apiAddress,
		"--etcd-servers=http://127.0.0.1:2379",
		"--authorization-mode=RBAC",
		"--token-auth-file=/etc/kubernetes/tokens.csv",
		"--tls-cert-file=/etc/kubernetes/apiserver.crt", "--tls-private-key-file=/etc/kubernetes/apiserver.key",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=/etc/kubernetes/apiserver.key", "--service-account-signing-key-file=/etc/kubernetes/apiserver.key",
		"--service-cluster-ip-range=10.96.0.0/14,fd00:96::/112",
		"--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
		"--audit-policy-file=/etc/kubernetes/audit.yaml", "--audit-log-path=/etc/kubernetes/audit.log",
		"--profiling=false",
	}
}

// writePKI makes the API server's certificate and its CA.
func (l *Lab) writePKI() error {
	conf, err := stub.TLS(l.pki(), []string{"kubernetes", "localhost", "127.0.0.1", apiAddress})
	if err != nil {
		return err
	}
	pair := conf.Certificates[0]
	key, err := x509.MarshalECPrivateKey(pair.PrivateKey.(*ecdsa.PrivateKey))
	if err != nil {
		return err
	}
	for name, block := range map[string]*pem.Block{
		"apiserver.crt": {Type: "CERTIFICATE", Bytes: pair.Certificate[0]},
		"apiserver.key": {Type: "EC PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(filepath.Join(l.pki(), name), pem.EncodeToMemory(block), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// writeKubeconfig makes a user's kubeconfig file, for a program on any machine of the segment.
func (l *Lab) writeKubeconfig(path, user string) error {
	ca, err := os.ReadFile(filepath.Join(l.pki(), "ca.crt"))
	if err != nil {
		return err
	}
	return os.WriteFile(path, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters:
- name: lab
  cluster: {server: "https://%s:6443", certificate-authority-data: %s}
users:
- name: %s
  user: {token: %s-token}
contexts:
- name: lab
  context: {cluster: lab, user: %s}
current-context: lab
`, apiAddress, base64.StdEncoding.EncodeToString(ca), user, user, user), 0o600)
}
