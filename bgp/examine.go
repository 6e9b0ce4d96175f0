package bgp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/internal/text"
)

// Examine explains in one sentence why a session of c with the peer cannot come up; empty if it can. It opens a separate
// connection with the session's password, TTL rules and source address, and exchanges OPENs, which takes up to three
// seconds. The peer must have an address. A peer refuses a second session: while a [Server] has one with it, read
// [Session.Reason] instead.
func Examine(ctx context.Context, c Config, p v1alpha1.Peer) string {
	return diagnose(ctx, c, p, p.Address, "")
}

// examineTimeout bounds one examination.
const examineTimeout = 3 * time.Second

// diagnose examines the peer at addr, as [Examine] does. GoBGP reports neither why a connection failed nor the
// text of a NOTIFICATION before Established. known is an earlier reason, for a peer that closes the connection
// without a NOTIFICATION.
func diagnose(ctx context.Context, c Config, p v1alpha1.Peer, addr netip.Addr, known string) string {
	c.ASN = ownASN(p, c.ASN)
	server := ctx
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	conn, err := dial(ctx, c, p, addr)
	if err != nil {
		return explainDial(p, addr, err)
	}
	defer conn.Close()
	// The end of the server must not wait for a silent peer. (The timeout is the deadline of the
	// connection, so that explainRead can tell a timeout from a closed connection.)
	defer context.AfterFunc(server, func() { conn.Close() })()
	// Without the port, which would change the reason at every examination.
	local, _, _ := net.SplitHostPort(conn.LocalAddr().String())
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err.Error()
	}
	open, err := openMessage(c, p)
	if err != nil {
		return err.Error()
	}
	if _, err := conn.Write(open); err != nil {
		return explainRead(p, addr, local, err, known)
	}
	reason, err := converse(conn, c, p)
	if err != nil {
		return explainRead(p, addr, local, err, known)
	}
	if reason == "" {
		// The session can come up: close properly, and let GoBGP's own attempt succeed.
		bye, _ := bgp.NewBGPNotificationMessage(bgp.BGP_ERROR_CEASE, bgp.BGP_ERROR_SUB_CONNECTION_REJECTED, nil).Serialize()
		_, _ = conn.Write(bye)
	}
	return reason
}

// converse reads the peer's answer to an OPEN: its own OPEN, then a KEEPALIVE if it agrees, or a
// NOTIFICATION if not. It returns the problem, or an error if the peer stops answering.
func converse(r io.Reader, c Config, p v1alpha1.Peer) (string, error) {
	for {
		m, err := readMessage(r)
		if err != nil {
			return "", err
		}
		switch body := m.Body.(type) {
		case *bgp.BGPOpen:
			if reason := mismatch(p, c.ASN, openASN(body)); reason != "" {
				return reason, nil
			}
			if body.ID == c.RouterID {
				return fmt.Sprintf("the peer has this node's router ID %s: set bgp.routerID", c.RouterID), nil
			}
		case *bgp.BGPNotification:
			return explainNotification(c, body), nil
		case *bgp.BGPKeepAlive:
			return "", nil
		default:
			return "the peer answers the OPEN with neither a KEEPALIVE nor a NOTIFICATION", nil
		}
	}
}

var errNotBGP = errors.New("not a BGP message")

// readMessage reads one BGP message of at most the 4,096 octets that RFC 4271
// section 4.1 allows before a session is up.
func readMessage(r io.Reader) (*bgp.BGPMessage, error) {
	header := make([]byte, bgp.BGP_HEADER_LENGTH)
	if _, err := io.ReadFull(r, header); err != nil {
		return nil, err
	}
	length := int(binary.BigEndian.Uint16(header[16:18]))
	if length < bgp.BGP_HEADER_LENGTH || length > bgp.BGP_MAX_MESSAGE_LENGTH {
		return nil, errNotBGP
	}
	message := append(header, make([]byte, length-bgp.BGP_HEADER_LENGTH)...)
	if _, err := io.ReadFull(r, message[bgp.BGP_HEADER_LENGTH:]); err != nil {
		return nil, err
	}
	m, err := bgp.ParseBGPMessage(message)
	if err != nil || m == nil {
		return nil, errNotBGP
	}
	return m, nil
}

func openMessage(c Config, p v1alpha1.Peer) ([]byte, error) {
	asn := uint16(bgp.AS_TRANS)
	if c.ASN <= 0xffff {
		asn = uint16(c.ASN)
	}
	caps := []bgp.ParameterCapabilityInterface{bgp.NewCapFourOctetASNumber(c.ASN)}
	if p.Carries(v1alpha1.IPv4) {
		caps = append(caps, bgp.NewCapMultiProtocol(bgp.RF_IPv4_UC))
	}
	if p.Carries(v1alpha1.IPv6) {
		caps = append(caps, bgp.NewCapMultiProtocol(bgp.RF_IPv6_UC))
	}
	open, err := bgp.NewBGPOpenMessage(asn, uint16(p.HoldTime.Seconds()), c.RouterID,
		[]bgp.OptionParameterInterface{bgp.NewOptionParameterCapability(caps)})
	if err != nil {
		return nil, fmt.Errorf("make an OPEN: %w", err)
	}
	return open.Serialize()
}

// openASN returns the sender's ASN, from the four-octet capability if present (RFC 6793).
func openASN(open *bgp.BGPOpen) uint32 {
	asn := uint32(open.MyAS)
	for _, param := range open.OptParams {
		caps, ok := param.(*bgp.OptionParameterCapability)
		if !ok {
			continue
		}
		for _, c := range caps.Capability {
			if four, ok := c.(*bgp.CapFourOctetASNumber); ok {
				asn = four.CapValue
			}
		}
	}
	return asn
}

func explainDial(p v1alpha1.Peer, addr netip.Addr, err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf("%s refuses TCP port %d: is BGP running there?", addr, p.Port)
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return fmt.Sprintf("%s is unreachable: no route, or no answer to ARP or NDP", addr)
	case errors.As(err, &timeout) && timeout.Timeout():
		password := "it expects a password"
		if p.Password != "" {
			password = "its password differs from passwordFile"
		}
		causes := []string{"the host is down", fmt.Sprintf("a filter drops port %d", p.Port), password}
		if p.TTLSecurity > 0 || p.Multihop > 0 {
			causes = append(causes, "its TTL rules differ from ttlSecurity or multihop")
		}
		return fmt.Sprintf("%s does not answer: %s", addr, strings.Join(causes, ", or "))
	}
	return fmt.Sprintf("cannot connect to %s: %v", addr, err)
}

// explainRead explains the error of a peer that accepted the connection but did not answer the OPEN.
func explainRead(p v1alpha1.Peer, addr netip.Addr, local string, err error, known string) string {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded) && (p.TTLSecurity > 0 || p.Multihop > 0):
		return fmt.Sprintf("%s accepts the connection but does not answer an OPEN: its BGP process hangs, or its TTL rules differ from ttlSecurity or multihop", addr)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Sprintf("%s accepts the connection but does not answer an OPEN: is its BGP process hung?", addr)
	case errors.Is(err, errNotBGP):
		return fmt.Sprintf("%s does not speak BGP", addr)
	case known != "":
		return known
	}
	return fmt.Sprintf("%s closes the connection from %s without a NOTIFICATION: is this node a neighbor there?", addr, local)
}

// explainNotification returns the peer's own reason (RFC 4271 section 4.5, RFC 9003).
func explainNotification(c Config, n *bgp.BGPNotification) string {
	switch {
	case n.ErrorCode == bgp.BGP_ERROR_OPEN_MESSAGE_ERROR && n.ErrorSubcode == bgp.BGP_ERROR_SUB_BAD_PEER_AS:
		return fmt.Sprintf("the peer expects another ASN than %d: %s", c.ASN, notificationName(n))
	case n.ErrorCode == bgp.BGP_ERROR_CEASE && len(n.Data) > 1 &&
		(n.ErrorSubcode == bgp.BGP_ERROR_SUB_ADMINISTRATIVE_SHUTDOWN || n.ErrorSubcode == bgp.BGP_ERROR_SUB_ADMINISTRATIVE_RESET):
		said := n.Data[1:]
		said = said[:min(int(n.Data[0]), len(said))]
		return fmt.Sprintf("the peer refuses: %s: the peer says %q", notificationName(n), text.Short(string(said), longestText))
	}
	return "the peer refuses: " + notificationName(n)
}

func notificationName(n *bgp.BGPNotification) string {
	return nameCease(bgp.NewNotificationErrorCode(n.ErrorCode, n.ErrorSubcode).String())
}
