package daemon

import (
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

// secrets are the passwords of BGP peers that are in Secrets. Each Secret is watched
// from the first time that its password is asked for until nobody names it any more.
type secrets struct {
	namespace string // of those that are named without one
	changed   func() // a password has, or may be had now
	watch     func(ctx context.Context, namespace, name string, set func(*corev1.Secret))

	watching sync.WaitGroup
	mu       sync.Mutex
	ctx      context.Context // of the watches; nil while there are none
	known    map[types.NamespacedName]*secret
}

// secret is what is known of one: a password, or why there is none.
type secret struct {
	cancel   context.CancelFunc
	password string
	err      error
}

// run has Secrets watched, by watch, until ctx is done.
func (s *secrets) run(ctx context.Context) {
	s.mu.Lock()
	s.ctx, s.known = ctx, make(map[types.NamespacedName]*secret)
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	s.ctx = nil
	s.mu.Unlock()
	s.watching.Wait()
}

// nameOf is the Secret that ref means.
func (s *secrets) nameOf(ref v1alpha1.SecretReference) types.NamespacedName {
	name := types.NamespacedName{Namespace: string(ref.Namespace), Name: ref.Name}
	if name.Namespace == "" {
		name.Namespace = s.namespace
	}
	return name
}

// password is the one in a Secret. It does not wait: that of a Secret that has not
// been read yet is told of by changed.
func (s *secrets) password(ref v1alpha1.SecretReference) (string, error) {
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

// keep forgets the Secrets that none of the peers name.
func (s *secrets) keep(peers []*v1alpha1.BGPPeer) {
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
