package secondchance

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"github.com/herald-vip/herald/netutil/link"
)

// Kinds of messages.
const (
	question byte = 1
	answer   byte = 2
)

const (
	// probePort is the UDP port of probes on the link.
	probePort = 7948
	// tokenSize is the length in bytes of the random token that follows the kind. An answer repeats the question's token.
	tokenSize = 8
	// commonMTU is the MTU of most links. Probes fill it, as packets of connections do: where fragments are dropped, probes are lost too.
	commonMTU = 1500
	// headerSize is that of IPv4 and UDP, in bytes.
	headerSize = 28
)

// probe answers probes of other members and returns a function that probes a member by its number. received is called with
// the number of each member that answers, on a goroutine that stop waits for. The link has to be up.
func (t vxlan) probe(self uint16, received func(number uint16)) (ask func(number uint16) error, stop func(), err error) {
	var conn *net.UDPConn
	dev, err := net.InterfaceByName(link.TunnelName)
	if err == nil {
		conn, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(probeAddr(self)))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("listen by link %s: %w", link.TunnelName, err)
	}
	token := make([]byte, tokenSize)
	_, _ = rand.Read(token) // never fails
	send := func(kind byte, token []byte, number uint16) error {
		message := make([]byte, min(dev.MTU, commonMTU)-headerSize)
		copy(message, append([]byte{kind}, token...))
		if _, err := conn.WriteToUDPAddrPort(message, probeAddr(number)); err != nil {
			return fmt.Errorf("probe by link %s: %w", link.TunnelName, err)
		}
		return nil
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, commonMTU)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			number, kind, got, ok := readProbe(from.Addr(), b[:n])
			switch {
			case !ok:
			case kind == question:
				_ = send(answer, got, number) // on failure the member asks again
			case bytes.Equal(got, token):
				received(number)
			}
		}
	}()
	ask = func(number uint16) error { return send(question, token, number) }
	return ask, func() { _ = conn.Close(); <-done }, nil
}

// probeAddr returns the address at which a member receives probes.
func probeAddr(number uint16) netip.AddrPort {
	return netip.AddrPortFrom(tunnelAddr(number, true), probePort)
}

// readProbe reads a message from an address of the link.
func readProbe(from netip.Addr, b []byte) (number uint16, kind byte, token []byte, ok bool) {
	if from = from.Unmap(); !from.Is4() || len(b) < 1+tokenSize || b[0] != question && b[0] != answer {
		return 0, 0, nil, false
	}
	number = binary.BigEndian.Uint16(from.AsSlice()[2:])
	return number, b[0], b[1 : 1+tokenSize], from == tunnelAddr(number, true)
}
