package peering

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/config"
)

// errUnread is the state of a Secret before it was read.
var errUnread = errors.New("has not been read yet")

// Watch calls set with the current Secret and after each change, with nil while it does not exist, until ctx is done.
type Watch func(ctx context.Context, namespace, name string, set func(*corev1.Secret))

// Secrets reads the passwords of BGP peers from Secrets. It watches each Secret from the first request of its password
// until no peer names it.
type Secrets struct {
	namespace string
	changed   func()

	watching sync.WaitGroup
	mu       sync.Mutex
	ctx      context.Context // of the watches; nil while there are none
	watch    Watch
	known    map[types.NamespacedName]*secret
}

// secret is a watched Secret: its password, or why there is none.
type secret struct {
	cancel   context.CancelFunc
	password string
	err      error
}

// NewSecrets returns Secrets without passwords; they are read by [Secrets.Run]. References without a namespace use the
// given one. It calls changed after each change of a password.
func NewSecrets(namespace string, changed func()) *Secrets {
	return &Secrets{namespace: namespace, changed: changed}
}

// Run watches Secrets until ctx is done.
func (s *Secrets) Run(ctx context.Context, watch Watch) {
	s.mu.Lock()
	s.ctx, s.watch, s.known = ctx, watch, make(map[types.NamespacedName]*secret)
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	s.ctx = nil
	s.mu.Unlock()
	s.watching.Wait()
}

// nameOf returns the name of the Secret that ref refers to.
func (s *Secrets) nameOf(ref v1alpha1.SecretReference) types.NamespacedName {
	return types.NamespacedName{Namespace: cmp.Or(string(ref.Namespace), s.namespace), Name: ref.Name}
}

// Password returns the password in a Secret. It does not wait: the first read of a Secret counts as a change.
func (s *Secrets) Password(ref v1alpha1.SecretReference) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := s.nameOf(ref)
	if known := s.known[name]; known != nil {
		return known.password, known.err
	}
	err := fmt.Errorf("passwordSecretRef: the Secret %s %w", name, errUnread)
	if s.ctx == nil {
		return "", err
	}
	ctx, cancel := context.WithCancel(s.ctx)
	known := &secret{cancel: cancel, err: err}
	s.known[name] = known
	s.watching.Go(func() {
		defer cancel()
		s.watch(ctx, name.Namespace, name.Name, func(now *corev1.Secret) {
			password, err := passwordIn(name, now)
			s.mu.Lock()
			known.password, known.err = password, err
			s.mu.Unlock()
			s.changed()
		})
	})
	return "", err
}

// passwordIn returns the password in a Secret, which is nil if it does not exist.
func passwordIn(name types.NamespacedName, s *corev1.Secret) (string, error) {
	const key = "password"
	if s == nil {
		return "", fmt.Errorf("passwordSecretRef: there is no Secret %s", name)
	}
	data, ok := s.Data[key]
	if !ok {
		return "", fmt.Errorf("passwordSecretRef: the Secret %s has no key %s", name, key)
	}
	password, err := config.ParsePassword(data)
	if err != nil {
		return "", fmt.Errorf("passwordSecretRef: the %s in the Secret %s: %w", key, name, err)
	}
	return password, nil
}

// Keep stops watching the Secrets that no peer names.
func (s *Secrets) Keep(peers []*v1alpha1.BGPPeer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	used := make(map[types.NamespacedName]bool)
	for _, p := range peers {
		if ref := p.Spec.PasswordSecretRef; ref != nil {
			used[s.nameOf(*ref)] = true
		}
	}
	for name, known := range s.known {
		if !used[name] {
			known.cancel()
			delete(s.known, name)
		}
	}
}
