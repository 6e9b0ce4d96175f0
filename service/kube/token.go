package kube

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The keys of a Secret by which another cluster is reached: its kubeconfig names the token by a file beside it, which
// can be renewed alone.
const (
	KeyKubeconfig = "kubeconfig"
	KeyToken      = "token"
)

// Kubeconfig is one for the server of c, with the token in a file of the name [KeyToken] beside it. server is the URL in place of that
// by which c is connected, if it is not empty.
func (c *Cluster) Kubeconfig(server string) (string, error) {
	authorities := c.config.CAData
	if len(authorities) == 0 && c.config.CAFile != "" {
		var err error
		if authorities, err = os.ReadFile(c.config.CAFile); err != nil {
			return "", fmt.Errorf("read the CA of the server: %w", err)
		}
	}
	if server == "" {
		server = c.config.Host
	}
	cluster := map[string]any{"server": server}
	if len(authorities) > 0 {
		cluster["certificate-authority-data"] = base64.StdEncoding.EncodeToString(authorities)
	}
	named := func(kind string, what any) []any { return []any{map[string]any{"name": "load-balancer", kind: what}} }
	out, err := json.Marshal(map[string]any{ // which is YAML
		"apiVersion": "v1", "kind": "Config", "current-context": "load-balancer",
		"clusters": named("cluster", cluster), "users": named("user", map[string]string{"tokenFile": KeyToken}),
		"contexts": named("context", map[string]string{"cluster": "load-balancer", "user": "load-balancer"}),
	})
	return string(out), err
}

// RequestToken has the server make a token of a service account, which lasts so long if the server lets it, and tells when it ends.
func (c *Cluster) RequestToken(ctx context.Context, namespace, account string, lasts time.Duration) (token string, ends time.Time, err error) {
	seconds := int64(lasts / time.Second)
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	body, err := json.Marshal(authenticationv1.TokenRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: authenticationv1.SchemeGroupVersion.String(), Kind: "TokenRequest"},
		Spec:     authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds},
	})
	var answer []byte
	if err == nil {
		answer, err = c.herald.Post().AbsPath("/api/v1/namespaces", namespace, "serviceaccounts", account, "token").Body(body).Do(ctx).Raw()
	}
	var made authenticationv1.TokenRequest
	if err == nil {
		err = json.Unmarshal(answer, &made)
	}
	if err != nil {
		return "", ends, fmt.Errorf("request a token of %s/%s: %w", namespace, account, err)
	}
	return made.Status.Token, made.Status.ExpirationTimestamp.Time, nil
}

// WriteToken puts a token into a Secret.
func (c *Cluster) WriteToken(ctx context.Context, namespace, name, token string) error {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	patch, err := json.Marshal(map[string]any{"data": map[string][]byte{KeyToken: []byte(token)}})
	if err == nil {
		err = c.send(ctx, c.core.Patch(types.MergePatchType).AbsPath(c.path(s)...).Body(patch))
	}
	if err != nil {
		return fmt.Errorf("write the token into Secret %s/%s: %w", namespace, name, err)
	}
	return nil
}
