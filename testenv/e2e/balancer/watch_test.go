//go:build e2e

package balancer

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/watch"

	"github.com/herald-vip/herald/internal/wake"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/lab"
)

// kubeClient returns a client of an apiserver, as an administrator inside a node.
func (b *balanced) kubeClient(t *testing.T, node, address string) *rest.RESTClient {
	t.Helper()
	scheme := runtime.NewScheme()
	site.Must(t, corev1.AddToScheme(scheme))
	file := func(name string) string { return filepath.Join(b.pki.Dir, name) }
	client, err := rest.RESTClientFor(&rest.Config{
		Host: "https://" + address, APIPath: "/api", Dial: b.Node(node).DialContext, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAFile: file("ca.crt"), CertFile: file("admin.crt"), KeyFile: file("admin.key"), ServerName: "kubernetes"},
		ContentConfig:   rest.ContentConfig{GroupVersion: &corev1.SchemeGroupVersion, NegotiatedSerializer: serializer.NewCodecFactory(scheme).WithoutConversion()},
	})
	site.Must(t, err)
	return client
}

// counter is a ConfigMap that is counted up, with a client that watches it through a
// balancer, as controllers and `kubectl wait` do.
type counter struct {
	mu      sync.Mutex
	written int
	seen    []observation
}

// observation is a value that the watcher received.
type observation struct {
	value int
	at    time.Time
}

// count creates the object and watches it from a node. The writer connects directly to
// the apiserver of the master that writer returns at the time.
func (b *balanced) count(t *testing.T, node string, writer func() string) *counter {
	t.Helper()
	c := new(counter)
	ctx, cancel := context.WithCancel(t.Context())
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "counter-", Namespace: metav1.NamespaceDefault}, Data: map[string]string{"n": "0"}}
	through := b.kubeClient(t, node, localAPI)
	site.Must(t, through.Post().Namespace(object.Namespace).Resource("configmaps").Body(object).Do(ctx).Into(object))
	list := cache.NewListWatchFromClient(through, "configmaps", object.Namespace, fields.OneTermEqualSelector("metadata.name", object.Name))
	watcher := site.Get[*watch.RetryWatcher](t)(watch.NewRetryWatcherWithContext(ctx, object.ResourceVersion, list))

	var running sync.WaitGroup
	running.Go(func() {
		for event := range watcher.ResultChan() {
			if o, ok := event.Object.(*corev1.ConfigMap); ok {
				n, err := strconv.Atoi(o.Data["n"])
				if err != nil {
					t.Error(err)
				}
				c.mu.Lock()
				c.seen = append(c.seen, observation{n, time.Now()})
				c.mu.Unlock()
			}
		}
	})
	direct := make(map[string]*rest.RESTClient)
	for _, m := range threeMasters() {
		direct[m] = b.kubeClient(t, m, "127.0.0.1:6443")
	}
	running.Go(func() {
		for n := 1; wake.Pause(ctx, 20*time.Millisecond); n++ {
			patch := fmt.Appendf(nil, `{"data": {"n": "%d"}}`, n)
			err := direct[writer()].Patch("application/merge-patch+json").Namespace(object.Namespace).
				Resource("configmaps").Name(object.Name).Body(patch).Do(ctx).Error()
			if err != nil && ctx.Err() == nil {
				t.Errorf("value %d was not written: %v", n, err)
			}
			c.mu.Lock()
			c.written = n
			c.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return c
}

// catchesUp waits until the watcher has received a value written after the call, and
// checks that it received every value once. It returns the watcher's longest silence
// since an instant.
func (c *counter) catchesUp(t *testing.T, since time.Time) (silence time.Duration) {
	t.Helper()
	const more = 10
	c.mu.Lock()
	want := c.written + more
	c.mu.Unlock()
	site.Eventually(t, site.Soon, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		return site.ErrorIf(len(c.seen) == 0 || c.seen[len(c.seen)-1].value < want,
			"the watch has received %d values, up to %+v, of %d", len(c.seen), c.seen[max(0, len(c.seen)-1):], c.written)
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	last := since
	for i, s := range c.seen {
		if s.value != i+1 {
			t.Fatalf("value %d came in place of %d", s.value, i+1)
		}
		if s.at.After(since) {
			silence = max(silence, s.at.Sub(last))
			last = s.at
		}
	}
	return silence
}

// testWatch watches through the balancer and breaks the apiserver at the other end in
// every way, while another worker keeps opening connections.
func (b *balanced) testWatch(t *testing.T, faults ...fault) {
	var writing sync.Mutex
	writer := ""
	avoid := func(master string) {
		writing.Lock()
		defer writing.Unlock()
		writer = map[string]string{"m1": "m2", "m2": "m3", "m3": "m1"}[master]
	}
	avoid("m3")
	c := b.count(t, "w1", func() string { writing.Lock(); defer writing.Unlock(); return writer })
	load := b.load(t, "w2", localAPI, b.pki.Client(t))
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			b.follow(t, threeMasters()...)
			lost := b.end(t, "w1", 6443)
			avoid(lost)
			c.catchesUp(t, time.Now())

			fault := time.Now()
			server := b.Node(lost + "-apiserver")
			f.make(t, server)
			mend := sync.OnceFunc(func() { f.mend(t, server) })
			defer mend() // later faults need a healthy master
			out := b.serve(t, "w2", "apiserver", others(lost)...)
			now := b.end(t, "w1", 6443, lost)
			silence := c.catchesUp(t, fault)
			t.Logf("%s lost, watched at %s; no value for %v", lost, now, silence.Round(time.Millisecond))
			share(t, load, fault, out)

			mended := time.Now()
			mend()
			b.serve(t, "w2", "apiserver", threeMasters()...)
			load.GoesOn(t, 50)
			load.None(t, mended)
		})
	}
}

// others returns the other masters.
func others(master string) []string {
	return strings.Fields(strings.ReplaceAll("m1 m2 m3", master, ""))
}

// fault takes a node away, and gives it back.
type fault struct {
	name       string
	make, mend func(t *testing.T, n *lab.Node)
}

// faults returns all faults, those without a power loss first.
func faults() []fault {
	return []fault{
		{"killed", site.Kill, site.Start},
		{"frozen", site.Freeze, site.Thaw},
		{"vanished", func(t *testing.T, n *lab.Node) { site.Must(t, n.PowerOff()) }, site.PowerOn},
	}
}
