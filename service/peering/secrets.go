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

// errUnread is what there is to say of a Secret until it has been read.
var errUnread = errors.New("has not been read yet")

// Watch calls set with a Secret as it is now and after each change, and with nil while there is
// none, until ctx is done.
type Watch func(ctx context.Context, namespace, name string, set func(*corev1.Secret))

// Secrets are the passwords of BGP peers that are in Secrets. Each Secret is watched
// from the first time that its password is asked for until no peer names it any more.
type Secrets struct {
	namespace string
	changed   func()

	watching sync.WaitGroup
	mu       sync.Mutex
	ctx      context.Context // of the watches; nil while there are none
	watch    Watch
	known    map[types.NamespacedName]*secret
}

// secret is what is known of one: a password, or why there is none.
type secret struct {
	cancel   context.CancelFunc
	password string
	err      error
}

// NewSecrets returns passwords that cannot be read until [Secrets.Run]. Secrets that are named
// without a namespace are in the given one. After a password has changed, changed is called.
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

// nameOf is the Secret that ref means.
func (s *Secrets) nameOf(ref v1alpha1.SecretReference) types.NamespacedName {
	return types.NamespacedName{Namespace: cmp.Or(string(ref.Namespace), s.namespace), Name: ref.Name}
}

// Password is the one in a Secret. It does not wait: when a Secret has been read that
// had not been, that is a change.
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
	one := &secret{cancel: cancel, err: err}
	s.known[name] = one
	s.watching.Go(func() {
		defer cancel()
		s.watch(ctx, name.Namespace, name.Name, func(is *corev1.Secret) {
			password, err := passwordIn(name, is)
			s.mu.Lock()
			one.password, one.err = password, err
			s.mu.Unlock()
			s.changed()
		})
	})
	return "", err
}

// passwordIn reads the password in a Secret, which is nil if it is not there.
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

// Keep forgets the Secrets that none of the peers name.
func (s *Secrets) Keep(peers []*v1alpha1.BGPPeer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	used := make(map[types.NamespacedName]bool)
	for _, p := range peers {
		if ref := p.Spec.PasswordSecretRef; ref != nil {
			used[s.nameOf(*ref)] = true
		}
	}
	for name, one := range s.known {
		if !used[name] {
			one.cancel()
			delete(s.known, name)
		}
	}
}
