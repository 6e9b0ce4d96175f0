package link

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
)

// The kinds of greetings.
const (
	question byte = 1
	answer   byte = 2
)

const (
	// tokenSize is how many bytes follow the kind: who answers repeats those of the question, which nobody can guess.
	tokenSize = 8
	// common is the MTU of most links. Greetings are as long, as packets of connections are: where fragments do not come
	// through, greetings do not.
	common = 1500
	// headers are those of IPv4 and UDP.
	headers = 28
)

// Greet answers nodes that ask by the tunnel whether this one, of number self, is there, and returns what asks another one by its
// number. heard is called with the number of each that has answered, on a goroutine that stop waits for. The link is to be up.
func (t Tunnel) Greet(self uint16, heard func(number uint16)) (ask func(number uint16) error, stop func(), err error) {
	var conn *net.UDPConn
	dev, err := net.InterfaceByName(TunnelName)
	if err == nil {
		conn, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(greeted(self)))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("listen by link %s: %w", TunnelName, err)
	}
	token := make([]byte, tokenSize)
	_, _ = rand.Read(token) // it does not fail
	send := func(kind byte, token []byte, to uint16) error {
		greeting := make([]byte, min(dev.MTU, common)-headers)
		copy(greeting, append([]byte{kind}, token...))
		if _, err := conn.WriteToUDPAddrPort(greeting, greeted(to)); err != nil {
			return fmt.Errorf("greet by link %s: %w", TunnelName, err)
		}
		return nil
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, common)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			number, kind, got, ok := readGreeting(from.Addr(), b[:n])
			switch {
			case !ok:
			case kind == question:
				_ = send(answer, got, number) // else it asks again
			case bytes.Equal(got, token):
				heard(number)
			}
		}
	}()
	ask = func(number uint16) error { return send(question, token, number) }
	return ask, func() { _ = conn.Close(); <-done }, nil
}

// greeted is where a node hears greetings.
func greeted(number uint16) netip.AddrPort {
	return netip.AddrPortFrom(TunnelAddr(number, true), GreetingPort)
}

// readGreeting reads what has come from an address of the tunnel.
func readGreeting(from netip.Addr, b []byte) (number uint16, kind byte, token []byte, ok bool) {
	if from = from.Unmap(); !from.Is4() || len(b) < 1+tokenSize || b[0] != question && b[0] != answer {
		return 0, 0, nil, false
	}
	number = binary.BigEndian.Uint16(from.AsSlice()[2:])
	return number, b[0], b[1 : 1+tokenSize], from == TunnelAddr(number, true)
}
