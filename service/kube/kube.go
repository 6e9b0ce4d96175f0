// Package kube connects Herald to a Kubernetes API: the few kinds of objects that
// announcing Services and serving tenants need, and nothing of the full typed client, which would
// double the binary and its memory. It is the only package that imports client-go.
package kube

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/herald-vip/herald/api/v1alpha1"
)

// answerTimeout is how long a request that is no watch may take.
const answerTimeout = 10 * time.Second

// goneAfter is how long the server's kernel may leave what was sent unconfirmed.
const goneAfter = 5 * time.Second

// Cluster is a connection to a Kubernetes API, which need not answer yet.
type Cluster struct {
	core, discovery, coordination, herald rest.Interface

	config   *rest.Config
	web      *http.Client // of all groups: one connection
	scheme   *runtime.Scheme
	said     *said
	requests *counter
}

// Connect prepares a connection by a kubeconfig file or, if that is empty, as the
// pod's service account. agent names the program to the API server. It sends
// nothing: a server that cannot be reached is no error.
func Connect(kubeconfig, agent string) (*Cluster, error) {
	if kubeconfig == "" {
		return connect(rest.InClusterConfig, agent)
	}
	return connect(func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", kubeconfig) }, agent)
}

// ConnectAsUser prepares a connection by a kubeconfig file or, if that is empty, as kubectl does: by the files in
// KUBECONFIG or, without that, by ~/.kube/config.
func ConnectAsUser(kubeconfig, agent string) (*Cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	return connect(clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig, agent)
}

func connect(load func() (*rest.Config, error), agent string) (*Cluster, error) {
	c, err := load()
	if err != nil {
		return nil, fmt.Errorf("connect to the Kubernetes API: %w", err)
	}
	c.UserAgent = agent
	// The server has its own limits, and knows better (API priority and fairness).
	c.QPS = -1
	c.WarningHandler = rest.NoWarnings{}
	c.Dial = dialer().DialContext
	web, err := rest.HTTPClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("connect to the Kubernetes API: %w", err)
	}
	requests := &counter{next: web.Transport}
	web.Transport = requests
	scheme := newScheme()
	codecs := serializer.NewCodecFactory(scheme).WithoutConversion()
	client := func(group schema.GroupVersion, content string) (rest.Interface, error) {
		own := rest.CopyConfig(c)
		own.GroupVersion, own.NegotiatedSerializer = &group, codecs
		own.AcceptContentTypes, own.ContentType = content+","+runtime.ContentTypeJSON, content
		own.APIPath = "/apis"
		if group.Group == "" {
			own.APIPath = "/api"
		}
		return rest.RESTClientForConfigAndClient(own, web)
	}
	out := &Cluster{config: c, web: web, scheme: scheme, said: newSaid(), requests: requests}
	for _, part := range []struct {
		to      *rest.Interface
		group   schema.GroupVersion
		content string
	}{
		{&out.core, corev1.SchemeGroupVersion, runtime.ContentTypeProtobuf},
		{&out.discovery, discoveryv1.SchemeGroupVersion, runtime.ContentTypeProtobuf},
		{&out.coordination, coordinationv1.SchemeGroupVersion, runtime.ContentTypeProtobuf},
		{&out.herald, v1alpha1.GroupVersion(), runtime.ContentTypeJSON},
	} {
		if *part.to, err = client(part.group, part.content); err != nil {
			return nil, fmt.Errorf("connect to the Kubernetes API: %w", err)
		}
	}
	return out, nil
}

// Namespace is where Herald's own Lease and Secrets are: as configured, else where the pod is, else
// kube-system, which every cluster has.
func Namespace(configured string) string {
	const own = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
	if configured != "" {
		return configured
	}
	if data, err := os.ReadFile(own); err == nil && len(data) > 0 {
		return strings.TrimSpace(string(data))
	}
	return "kube-system"
}

// dialer makes connections that notice within seconds that the server is gone
// without a word, as when its VIP has moved: a watch sends nothing by itself.
func dialer() *net.Dialer {
	return &net.Dialer{
		Timeout:         answerTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 2 * time.Second, Interval: time.Second, Count: 3},
		Control: func(_, _ string, raw syscall.RawConn) error {
			var failed error
			err := raw.Control(func(fd uintptr) {
				failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(goneAfter.Milliseconds()))
			})
			return errors.Join(err, failed)
		},
	}
}

// newScheme knows the kinds that Herald reads and writes.
func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	s.AddKnownTypes(corev1.SchemeGroupVersion,
		&corev1.Service{}, &corev1.ServiceList{}, &corev1.Node{}, &corev1.NodeList{},
		&corev1.Namespace{}, &corev1.NamespaceList{}, &corev1.Secret{}, &corev1.SecretList{}, &corev1.Event{},
		&corev1.ServiceAccount{}, &corev1.ResourceQuota{})
	s.AddKnownTypes(discoveryv1.SchemeGroupVersion, &discoveryv1.EndpointSlice{}, &discoveryv1.EndpointSliceList{})
	s.AddKnownTypes(coordinationv1.SchemeGroupVersion, &coordinationv1.Lease{}, &coordinationv1.LeaseList{})
	s.AddKnownTypes(authenticationv1.SchemeGroupVersion, &authenticationv1.TokenRequest{})
	s.AddKnownTypes(rbacv1.SchemeGroupVersion, &rbacv1.RoleBinding{})
	for _, group := range []schema.GroupVersion{
		corev1.SchemeGroupVersion, discoveryv1.SchemeGroupVersion, coordinationv1.SchemeGroupVersion,
	} {
		metav1.AddToGroupVersion(s, group)
	}
	_ = v1alpha1.AddToScheme(s) // always nil
	return s
}
