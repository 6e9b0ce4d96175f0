package health

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/internal/yaml"
)

// ICMP is an echo request that must be replied to. It needs CAP_NET_RAW. It cannot have `not: true`, as silence proves nothing.
type ICMP struct {
	// Address is the host's; a link-local one needs a zone, `fe80::1%eth0`. Required.
	Address netip.Addr `yaml:"address"`
}

// Validate implements [Check.Validate] for this kind.
func (i *ICMP) Validate(r *yaml.Report, p yaml.Path) {
	p = p.Field("address")
	switch addr := i.Address; {
	case !addr.IsValid():
		r.Errorf(p, "missing: give the address of a host")
	case !yaml.IsUnicast(addr):
		r.Errorf(p, "want the address of a host, got %s", addr)
	case addr.Is6() && addr.IsLinkLocalUnicast() && addr.Zone() == "":
		r.Errorf(p, "a link-local address needs a zone: write %s%%eth0 with the link's name", addr)
	}
}

func (i *ICMP) prober(m *Monitor, timeout time.Duration) (prober, error) {
	return named{&icmpProber{address: i.Address, timeout: timeout, dial: m.dial}, "ping " + i.Address.String()}, nil
}

// icmpProber sends an echo request and waits for its reply.
type icmpProber struct {
	address  netip.Addr
	seq      int
	timeout  time.Duration
	dial     dialFunc
	idleConn // always empty
}

func (p *icmpProber) probe(ctx context.Context) outcome {
	start := time.Now()
	if err := p.ping(ctx); errors.Is(err, unix.EPERM) {
		return ownFailure("no raw socket: give the process CAP_NET_RAW")
	} else if err != nil {
		return explain(&stageError{"no reply", err}, p.timeout)
	}
	return outcome{kind: passed, reason: fmt.Sprintf("reply in %v", round(time.Since(start)))}
}

// ping returns nil when the reply arrives. The kernel delivers only packets from the address.
func (p *icmpProber) ping(ctx context.Context) error {
	request := icmp.Message{Type: ipv4.ICMPTypeEcho}
	network := "ip4:icmp"
	if p.address.Is6() {
		request.Type, network = ipv6.ICMPTypeEchoRequest, "ip6:ipv6-icmp"
	}
	data := make([]byte, 18)
	_, _ = rand.Read(data) // never fails
	p.seq = (p.seq + 1) & 0xffff
	echo := &icmp.Echo{ID: int(binary.BigEndian.Uint16(data)), Seq: p.seq, Data: data[2:]}
	request.Body = echo
	packet, err := request.Marshal(nil)
	if err != nil {
		return err
	}
	conn, err := p.dial(ctx, network, p.address.String())
	if err != nil {
		return err
	}
	w := newWire(conn)
	defer w.close()
	return w.during(ctx, func() error {
		if _, err := conn.Write(packet); err != nil {
			return err
		}
		buf := make([]byte, 1500)
		for {
			n, _, err := conn.(net.PacketConn).ReadFrom(buf) // without the IPv4 header, unlike Read
			if err != nil || isReply(buf[:n], p.address.Is6(), echo) {
				return err
			}
		}
	})
}

// isReply reports whether packet is the reply to an echo request (RFC 792, RFC 4443 section 4.2).
func isReply(packet []byte, six bool, echo *icmp.Echo) bool {
	protocol, want := unix.IPPROTO_ICMP, icmp.Type(ipv4.ICMPTypeEchoReply)
	if six {
		protocol, want = unix.IPPROTO_ICMPV6, ipv6.ICMPTypeEchoReply
	}
	m, err := icmp.ParseMessage(protocol, packet)
	if err != nil || m.Type != want {
		return false
	}
	reply, ok := m.Body.(*icmp.Echo)
	return ok && reply.ID == echo.ID && reply.Seq == echo.Seq && bytes.Equal(reply.Data, echo.Data)
}
