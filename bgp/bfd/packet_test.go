package bfd

import (
	"bytes"
	"errors"
	"testing"
	"time"
)

// onWire is a packet from another implementation.
var onWire = []byte{
	0x20 | 3, 0xc0 | 0x20, 3, 24,
	0x01, 0x02, 0x03, 0x04,
	0x05, 0x06, 0x07, 0x08,
	0x00, 0x00, 0xc3, 0x50,
	0x00, 0x04, 0x93, 0xe0,
	0x00, 0x00, 0x00, 0x00,
}

func TestPacket(t *testing.T) {
	want := Packet{
		Diagnostic: NeighborSignaledDown, State: Up, Poll: true, Multiplier: 3,
		MyDiscriminator: 0x01020304, YourDiscriminator: 0x05060708,
		DesiredMinTx: 50 * time.Millisecond, RequiredMinRx: 300 * time.Millisecond,
	}
	var got Packet
	if err := got.Decode(onWire); err != nil || got != want {
		t.Errorf("decoded %+v, %v; want %+v", got, err, want)
	}
	var b [packetLen]byte
	if want.Encode(&b); !bytes.Equal(b[:], onWire) {
		t.Errorf("encoded %x, want %x", b, onWire)
	}
}

// Decode refuses the packets that RFC 5880 section 6.8.6 discards.
func TestDecodeRefuses(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func([]byte) []byte
		want   error
	}{
		{"nothing", func([]byte) []byte { return nil }, errShort},
		{"23 octets", func(b []byte) []byte { return b[:23] }, errShort},
		{"version 0", func(b []byte) []byte { b[0] &= 0x1f; return b }, errVersion},
		{"version 2", func(b []byte) []byte { b[0] = 2 << 5; return b }, errVersion},
		{"length of 23", func(b []byte) []byte { b[3] = 23; return b }, errLength},
		{"length beyond the payload", func(b []byte) []byte { b[3] = 25; return b }, errLength},
		{"multiplier of 0", func(b []byte) []byte { b[2] = 0; return b }, errMultiplier},
		{"multipoint", func(b []byte) []byte { b[1] |= 1; return b }, errMultipoint},
		{"no discriminator", func(b []byte) []byte { clear(b[4:8]); return b }, errDiscriminator},
		{"up without session", func(b []byte) []byte { clear(b[8:12]); return b }, errUnbound},
		{"init without session", func(b []byte) []byte { clear(b[8:12]); b[1] = 2 << 6; return b }, errUnbound},
		{"down without session", func(b []byte) []byte { clear(b[8:12]); b[1] = 1 << 6; return b }, nil},
		{"shut down without session", func(b []byte) []byte { clear(b[8:12]); b[1] = 0; return b }, nil},
		{"authenticated", func(b []byte) []byte { b[1] |= 4; b[3] = 26; return append(b, 1, 2) }, errAuthenticated},
		{"padded", func(b []byte) []byte { return append(b, 1, 2, 3) }, nil},
	} {
		var p Packet
		if err := p.Decode(test.change(bytes.Clone(onWire))); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", test.name, err, test.want)
		}
	}
}

// A decoded packet survives encoding and decoding.
func FuzzPacket(f *testing.F) {
	f.Add(onWire)
	f.Fuzz(func(t *testing.T, b []byte) {
		var p, again Packet
		if p.Decode(b) != nil {
			return
		}
		var out [packetLen]byte
		p.Encode(&out)
		if err := again.Decode(out[:]); err != nil || again != p {
			t.Errorf("%+v came back as %+v, %v", p, again, err)
		}
	})
}
