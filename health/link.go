package health

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/internal/yaml"
)

// Link is a network interface that must be operational: it exists, is set up and has a carrier (`ifOperStatus` of RFC 2863). One failing probe fails the check: `fall` does not count, except with `not: true`.
type Link struct {
	// Name is the link's, such as `eth1` or `bond0`. Required.
	Name string `yaml:"name"`
}

// Validate implements [Check.Validate] for this kind.
func (l *Link) Validate(r *yaml.Report, p yaml.Path) { r.Link(p.Field("name"), l.Name) }

func (l *Link) prober(*Monitor, time.Duration) (prober, error) {
	return named{&linkProber{name: l.Name}, "link " + l.Name}, nil
}

// linkProber asks the kernel for the flags of a link.
type linkProber struct {
	name     string
	idleConn // always empty
}

func (p *linkProber) probe(ctx context.Context) outcome {
	flags, err := linkFlags(ctx, p.name)
	switch {
	case errors.Is(err, unix.ENODEV):
		return outcome{kind: refused, reason: "does not exist"}
	case err != nil:
		return ownFailure("cannot read its state: " + err.Error())
	}
	return linkOutcome(flags)
}

// linkOutcome judges the flags of a link (netdevice(7)). A state other than up is proof, as a refused connection is.
func linkOutcome(flags uint32) outcome {
	switch {
	case flags&unix.IFF_UP == 0:
		return outcome{kind: refused, reason: "administratively down"}
	case flags&unix.IFF_RUNNING != 0: // also for links that do not know their carrier, such as lo
		return outcome{kind: passed, reason: "up"}
	case flags&unix.IFF_LOWER_UP == 0:
		return outcome{kind: refused, reason: "no carrier"}
	default:
		return outcome{kind: refused, reason: "dormant"} // waits for a protocol such as 802.1X
	}
}

// linkFlags reads the flags of one link. A dump of all links could miss it while others come and go.
func linkFlags(ctx context.Context, name string) (uint32, error) {
	attrs, err := netlink.MarshalAttributes([]netlink.Attribute{{Type: unix.IFLA_IFNAME, Data: []byte(name)}})
	if err != nil {
		return 0, err
	}
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline) // if this fails, so does Execute
	replies, err := conn.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.RTM_GETLINK, Flags: netlink.Request},
		Data:   append(make([]byte, unix.SizeofIfInfomsg), attrs...),
	})
	if err == nil && (len(replies) != 1 || len(replies[0].Data) < unix.SizeofIfInfomsg) {
		err = errors.New("unexpected answer")
	}
	if err != nil {
		return 0, err
	}
	return binary.NativeEndian.Uint32(replies[0].Data[8:]), nil
}
