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
	// maxAddresses is how many addresses of a name are used.
	maxAddresses = 64
	// lookUpTimeout bounds a look-up, and lookUpRetry is when one that failed is tried again, at
	// the latest.
	lookUpTimeout = 10 * time.Second
	lookUpRetry   = 5 * time.Second
)

// lookUp is the looking up of a name.
type lookUp struct {
	next    time.Time
	running bool
	err     error // of the last one
}

// network is the family of addresses to look up: the kernel cannot translate one into the other.
func (r *running) network() string {
	is4 := func(a netip.AddrPort) bool { return a.Addr().Unmap().Is4() }
	is6 := func(a netip.AddrPort) bool { return !is4(a) }
	listen := r.config.Listen
	switch {
	case r.config.Mode == Proxy || len(listen) == 0:
		return "ip"
	case !slices.ContainsFunc(listen, is6):
		return "ip4"
	case !slices.ContainsFunc(listen, is4):
		return "ip6"
	default:
		return "ip"
	}
}

// resolve looks a balancer's name up, once, and makes known what came of it.
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

// noteLookUp takes in what a look-up has found. The mutex is held.
func (s *Set) noteLookUp(balancer string, dns DNS, ips []netip.Addr, err error) {
	r := s.find(balancer)
	if r == nil || r.config.DNS == nil || r.config.DNS.Name != dns.Name || r.config.DNS.Port != dns.Port {
		return // configured otherwise meanwhile
	}
	r.lookUp = lookUp{next: time.Now().Add(r.config.DNS.Interval), err: err}
	if err != nil {
		var named *net.DNSError // which says of which name
		if !errors.As(err, &named) {
			r.lookUp.err = fmt.Errorf("look up %s: %w", dns.Name, err)
		}
		r.lookUp.next = time.Now().Add(min(r.config.DNS.Interval, lookUpRetry))
		return
	}
	var list []netip.AddrPort
	for _, ip := range ips {
		list = append(list, netip.AddrPortFrom(ip.Unmap(), dns.Port))
	}
	list = addresses(list)
	r.listed = list[:min(len(list), maxAddresses)]
}

// noteUnchecked logs that backends that have come or gone cannot be checked: checks differ from ones that were
// taken by addresses only.
func (s *Set) noteUnchecked(err error) {
	if err != nil {
		s.log.Error("backends cannot be checked", "err", err)
	}
}
