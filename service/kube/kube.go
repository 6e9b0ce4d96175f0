// Package kube connects Herald to a Kubernetes API. It knows only the kinds of objects that announcing
// Services and serving tenants need: the full typed client would double the binary and its memory. No
// other package imports client-go.
package kube

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
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
	"k8s.io/client-go/util/workqueue"

	"github.com/herald-vip/herald/api/v1alpha1"
)

// answerTimeout limits requests other than watches and long lists.
const answerTimeout = 10 * time.Second

// goneAfter is the TCP user timeout: the longest time without an acknowledgement of sent data.
const goneAfter = 5 * time.Second

// Cluster is a client of a Kubernetes API. The server need not answer yet.
type Cluster struct {
	core, discovery, coordination, herald rest.Interface

	config   *rest.Config
	web      *http.Client // shared by all groups: one connection
	scheme   *runtime.Scheme
	said     *said
	requests *counter
}

// Connect prepares a connection with a kubeconfig file or, if kubeconfig is empty, as the pod's service account. agent
// is the User-Agent. It sends nothing, so an unreachable server is not an error.
func Connect(kubeconfig, agent string) (*Cluster, error) {
	if kubeconfig == "" {
		return connect(rest.InClusterConfig, agent)
	}
	return connect(func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", kubeconfig) }, agent)
}

// ConnectAsUser prepares a connection with a kubeconfig file or, if kubeconfig is empty, with the files that kubectl
// uses: the list in KUBECONFIG, or ~/.kube/config.
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
	// The server limits requests itself (API priority and fairness).
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
		client  *rest.Interface
		group   schema.GroupVersion
		content string
	}{
		{&out.core, corev1.SchemeGroupVersion, runtime.ContentTypeProtobuf},
		{&out.discovery, discoveryv1.SchemeGroupVersion, runtime.ContentTypeProtobuf},
		{&out.coordination, coordinationv1.SchemeGroupVersion, runtime.ContentTypeProtobuf},
		{&out.herald, v1alpha1.GroupVersion(), runtime.ContentTypeJSON},
	} {
		if *part.client, err = client(part.group, part.content); err != nil {
			return nil, fmt.Errorf("connect to the Kubernetes API: %w", err)
		}
	}
	return out, nil
}

// Namespace returns the namespace of Herald's own Lease and Secrets: the configured one, or the pod's, or kube-system.
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

// dialer returns a dialer with keepalives, which detect within seconds that the server has vanished,
// for instance because its VIP moved: a watch sends nothing by itself.
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

// newScheme returns the kinds that Herald reads and writes.
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

// Growing pauses between retries.
const (
	retryFirst, retryLast = 200 * time.Millisecond, 30 * time.Second
	// workers limits concurrent work.
	workers = 16
)

// Queue schedules work by key. It never works on the same key twice at once. It repeats the work on a key that was added
// again meanwhile, or that failed.
type Queue struct {
	workqueue.TypedRateLimitingInterface[string]
}

// NewQueue returns an empty queue.
func NewQueue() *Queue {
	return &Queue{workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryFirst, retryLast))}
}

// Run calls f for the keys until ctx ends and all calls have returned. If f returns an error, the key is retried; f must
// log the error itself.
func (q *Queue) Run(ctx context.Context, f func(ctx context.Context, key string) error) {
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				key, ended := q.Get()
				if ended {
					return
				}
				if err := f(ctx, key); err != nil && ctx.Err() == nil {
					q.AddRateLimited(key)
				} else {
					q.Forget(key)
				}
				q.Done(key)
			}
		})
	}
	<-ctx.Done()
	q.ShutDown()
	wg.Wait()
}
