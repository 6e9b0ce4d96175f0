package observe

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"slices"
	"testing"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// packet returns an IPv4 packet from 10.1.1.1 with a TCP segment.
func packet(flags byte, payload []byte) []byte {
	p := make([]byte, 40, 40+len(payload))
	p[0], p[9] = 0x45, 6
	binary.BigEndian.PutUint16(p[2:], uint16(40+len(payload)))
	copy(p[12:], []byte{10, 1, 1, 1, 10, 1, 1, 254})
	p[32], p[33] = 5<<4, flags
	return append(p, payload...)
}

// message returns a BGP message around a body in hexadecimal digits.
func message(kind byte, body string) []byte {
	b, err := hex.DecodeString(body)
	if err != nil {
		panic(err)
	}
	m := slices.Repeat([]byte{0xff}, 16)
	m = binary.BigEndian.AppendUint16(m, uint16(19+len(b)))
	return append(append(m, kind), b...)
}

// The messages: 10.99.0.10/32 withdrawn; announced; end-of-RIB.
func withdrawal() []byte { return message(bgp.BGP_MSG_UPDATE, "0005"+"200a63000a"+"0000") }
func announcement() []byte {
	return message(bgp.BGP_MSG_UPDATE, "0000"+"0014"+"40010100"+"40020602010000fc00"+"4003040a010101"+"200a63000a")
}
func endOfRIB() []byte     { return message(bgp.BGP_MSG_UPDATE, "00000000") }
func notification() []byte { return message(bgp.BGP_MSG_NOTIFICATION, "0602") }
func keepalive() []byte    { return message(bgp.BGP_MSG_KEEPALIVE, "") }

func TestRead(t *testing.T) {
	const ack, fin, rst = 0x10, 0x11, 0x04
	tests := []struct {
		name   string
		packet []byte
		want   []Word
	}{
		{"acknowledgement", packet(ack, nil), nil},
		{"withdrawal", packet(ack, withdrawal()), []Word{Withdrawal}},
		{"announcement", packet(ack, announcement()), []Word{Announcement}},
		{"end-of-RIB", packet(ack, endOfRIB()), nil},
		{"keepalive, then withdrawal", packet(ack, slices.Concat(keepalive(), withdrawal())), []Word{Withdrawal}},
		{"notification and FIN", packet(fin, notification()), []Word{Notification, Close}},
		{"reset", packet(rst, nil), []Word{Close}},
		{"cut short", packet(ack, withdrawal()[:20]), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			from, words := read(tt.packet)
			if from != netip.MustParseAddr("10.1.1.1") || !slices.Equal(words, tt.want) {
				t.Errorf("words from %v are %q, want %q", from, words, tt.want)
			}
		})
	}
}

// FuzzRead checks that no packet makes it panic.
func FuzzRead(f *testing.F) {
	for _, payload := range [][]byte{nil, withdrawal(), announcement(), notification()} {
		f.Add(packet(0x11, payload))
	}
	f.Fuzz(func(t *testing.T, packet []byte) {
		from, words := read(packet)
		if len(words) > 0 && !from.IsValid() {
			t.Errorf("the words %q have no valid sender", words)
		}
	})
}
