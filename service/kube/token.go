package kube

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// The keys of a Secret with access to another cluster. The kubeconfig refers to the token as a file beside it, so that
// the token can be renewed alone.
const (
	KeyKubeconfig = "kubeconfig"
	KeyToken      = "token"
)

// Kubeconfig returns a kubeconfig for the server of c that reads the token from the file [KeyToken] beside it. A non-empty
// server replaces the URL of c.
func (c *Cluster) Kubeconfig(server string) ([]byte, error) {
	config := rest.CopyConfig(c.config)
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, fmt.Errorf("read the CA of the server: %w", err)
	}
	const name = "load-balancer"
	return clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: cmp.Or(server, config.Host), CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {TokenFile: KeyToken}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	})
}

// RequestToken requests a token of a service account with the lifetime wanted. It returns the lifetime that the server granted.
func (c *Cluster) RequestToken(ctx context.Context, namespace, account string, wanted time.Duration) (token string, lasts time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(wanted / time.Second))}}
	made := new(authenticationv1.TokenRequest)
	err = c.core.Post().Namespace(namespace).Resource("serviceaccounts").Name(account).SubResource("token").Body(request).Do(ctx).Into(made)
	if err != nil {
		return "", 0, fmt.Errorf("request a token of %s/%s: %w", namespace, account, err)
	}
	if made.Spec.ExpirationSeconds != nil {
		lasts = time.Duration(*made.Spec.ExpirationSeconds) * time.Second
	}
	return made.Status.Token, lasts, nil
}

// WriteToken writes a token into a Secret.
func (c *Cluster) WriteToken(ctx context.Context, namespace, name, token string) error {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	data := map[string]any{"data": map[string][]byte{KeyToken: []byte(token)}}
	if err := patch(ctx, c.core, types.MergePatchType, c.path(s), data, nil); err != nil {
		return fmt.Errorf("write the token into Secret %s/%s: %w", namespace, name, err)
	}
	return nil
}

// WatchSecret calls set with one Secret, at first and after each change, until ctx ends. It calls set with nil while
// there is none. While the server is away it does not call set.
func (c *Cluster) WatchSecret(ctx context.Context, log *slog.Logger, namespace, name string, set func(*corev1.Secret)) {
	i := newInformerOfOne(c.core, "secrets", namespace, name, func(s *corev1.Secret) { trimMeta(&s.ObjectMeta) }, set)
	i.about = "Secret " + namespace + "/" + name
	i.run(ctx, c.trouble(log))
	c.said.replace(time.Now(), i.about, "") // end its trouble: no request follows
}
