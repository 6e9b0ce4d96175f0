package balancer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"
)

const (
	// maxAddresses limits the addresses of a name.
	maxAddresses = 64
	// lookUpTimeout limits a look-up. lookUpRetry is the longest pause after a failed one.
	lookUpTimeout = 10 * time.Second
	lookUpRetry   = 5 * time.Second
)

// lookUp is the state of look-ups of a name.
type lookUp struct {
	next    time.Time
	running bool
	err     error // of the last look-up
}

// network returns the family of addresses to look up: the kernel cannot translate between families.
func (r *running) network() string {
	is4 := func(a netip.AddrPort) bool { return a.Addr().Unmap().Is4() }
	is6 := func(a netip.AddrPort) bool { return !is4(a) }
	has4, has6 := slices.ContainsFunc(r.listen, is4), slices.ContainsFunc(r.listen, is6)
	switch {
	case r.config.Mode == Proxy || has4 == has6:
		return "ip"
	case has4:
		return "ip4"
	}
	return "ip6"
}

// resolve looks up a balancer's name once and applies the result.
func (s *Set) resolve(ctx context.Context, balancer string, dns DNS, network string) {
	bounded, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	ips, err := s.resolver.LookupNetIP(bounded, network, dns.Name)
	if ctx.Err() != nil {
		return
	}
	err = s.recheck(func() []*running {
		s.noteLookUp(balancer, dns, ips, err)
		return s.balancers
	})
	s.noteUnchecked(err)
}

// noteLookUp records the result of a look-up. s.mu is held.
func (s *Set) noteLookUp(balancer string, dns DNS, ips []netip.Addr, err error) {
	r := s.find(balancer)
	if r == nil {
		return // removed meanwhile
	}
	now := r.config.Backends.DNS
	if now == nil || now.Name != dns.Name || now.Port != dns.Port {
		return // the configuration changed meanwhile
	}
	r.lookUp = lookUp{next: time.Now().Add(now.Interval), err: err}
	if err != nil {
		if _, named := errors.AsType[*net.DNSError](err); !named { // which contains the name
			r.lookUp.err = fmt.Errorf("look up %s: %w", dns.Name, err)
		}
		r.lookUp.next = time.Now().Add(min(now.Interval, lookUpRetry))
		return
	}
	var list []netip.AddrPort
	for _, ip := range ips {
		list = append(list, netip.AddrPortFrom(ip.Unmap(), dns.Port))
	}
	list = addresses(list)
	r.listed = list[:min(len(list), maxAddresses)]
}

// noteUnchecked logs an error of the monitor about new checks, which differ from valid ones only by address.
func (s *Set) noteUnchecked(err error) {
	if err != nil {
		s.log.Error("cannot check backends", "err", err)
	}
}
