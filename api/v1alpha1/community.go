package v1alpha1

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/herald-vip/herald/internal/text"
)

// Community is an RFC 1997 community. Its text is two numbers of 16 bits, `65000:100`, or a well-known name.
//
// +kubebuilder:validation:MaxLength=19
// +kubebuilder:validation:XValidation:rule="self in ['no-export', 'no-advertise', 'no-export-subconfed', 'no-peer', 'graceful-shutdown', 'blackhole'] || self.matches('^[0-9]{1,5}:[0-9]{1,5}$') && self.split(':').all(n, int(n) <= 65535)",message="want a community such as 65000:100 or no-export"
type Community uint32

// GracefulShutdown asks the receiver to prefer any other path (RFC 8326).
const GracefulShutdown Community = 0xffff0000

// wellKnown are the communities that have names.
var wellKnown = map[string]Community{
	"graceful-shutdown":   GracefulShutdown,
	"blackhole":           0xffff029a, // RFC 7999
	"no-export":           0xffffff01, // RFC 1997
	"no-advertise":        0xffffff02, // RFC 1997
	"no-export-subconfed": 0xffffff03, // RFC 1997
	"no-peer":             0xffffff04, // RFC 3765
}

// LargeCommunity is an RFC 8092 large community. Its text is three numbers of 32 bits, `64512:1:2`.
//
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]{1,10}:[0-9]{1,10}:[0-9]{1,10}$') && self.split(':').all(n, int(n) <= 4294967295)",message="want a large community such as 64512:1:2"
// +kubebuilder:validation:XValidation:rule="!self.matches('^0*4294967295:')",message="the number 4294967295 is reserved: want another in front"
type LargeCommunity struct{ Global, Local1, Local2 uint32 }

// ReservedGlobal is the global number of large communities that [ParseLargeCommunity] refuses (RFC 8092
// section 5), so that package bgp can mark routes with it.
const ReservedGlobal = math.MaxUint32

// ParseCommunity reads a community.
func ParseCommunity(s string) (Community, error) {
	if c, ok := wellKnown[s]; ok {
		return c, nil
	}
	n, ok := numbers(s, 2, 16)
	if !ok {
		return 0, fmt.Errorf("want a community such as 65000:100 or no-export, got %s", quote(s))
	}
	return Community(n[0]<<16 | n[1]), nil
}

// Numbers returns the "asn:value" form, of well-known communities too.
func (c Community) Numbers() string { return fmt.Sprintf("%d:%d", c>>16, c&0xffff) }

// String returns the well-known name, or the "asn:value" form of other communities.
func (c Community) String() string {
	for name, known := range wellKnown {
		if c == known {
			return name
		}
	}
	return c.Numbers()
}

// MarshalText implements [encoding.TextMarshaler].
func (c Community) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (c *Community) UnmarshalText(text []byte) (err error) {
	*c, err = ParseCommunity(string(text))
	return err
}

// ParseLargeCommunity reads a large community.
func ParseLargeCommunity(s string) (LargeCommunity, error) {
	n, ok := numbers(s, 3, 32)
	if !ok {
		return LargeCommunity{}, fmt.Errorf("want a large community such as 64512:1:2, got %s", quote(s))
	}
	if n[0] == ReservedGlobal {
		return LargeCommunity{}, fmt.Errorf("the number %d is reserved, got %s", n[0], quote(s))
	}
	return LargeCommunity{n[0], n[1], n[2]}, nil
}

// String returns the "global:local1:local2" form.
func (l LargeCommunity) String() string { return fmt.Sprintf("%d:%d:%d", l.Global, l.Local1, l.Local2) }

// Compare orders large communities by their numbers, the first one first.
func (l LargeCommunity) Compare(o LargeCommunity) int {
	return cmp.Or(cmp.Compare(l.Global, o.Global), cmp.Compare(l.Local1, o.Local1), cmp.Compare(l.Local2, o.Local2))
}

// MarshalText implements [encoding.TextMarshaler].
func (l LargeCommunity) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (l *LargeCommunity) UnmarshalText(text []byte) (err error) {
	*l, err = ParseLargeCommunity(string(text))
	return err
}

// numbers reads count numbers of the given size, joined by colons.
func numbers(s string, count, bits int) ([]uint32, bool) {
	parts := strings.Split(s, ":")
	if len(parts) != count {
		return nil, false
	}
	n := make([]uint32, count)
	for i, part := range parts {
		v, err := strconv.ParseUint(part, 10, bits)
		if err != nil {
			return nil, false
		}
		n[i] = uint32(v)
	}
	return n, true
}

// quote quotes the first 64 bytes of s.
func quote(s string) string {
	const limit = 64
	return strconv.Quote(text.Cut(s, limit))
}

// ASN is the number of an autonomous system, or [External]. In JSON and YAML it is a number or the word.
type ASN uint32

// External accepts any number but this node's own. Its value is reserved (RFC 7300), so no system has it.
const External ASN = math.MaxUint32

const external = "external"

var errASNRange = errors.New("give a number from 1 to 4294967294")

// ParseASN reads a number that an autonomous system may have.
func ParseASN(s string) (ASN, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%w, got %q", errASNRange, text.Short(s, 32))
	}
	return ASN(n), ASN(n).Check()
}

// Check refuses the reserved numbers, which no autonomous system has.
func (a ASN) Check() error {
	switch a {
	case 0: // RFC 7607
		return errASNRange
	case 23456, 65535, 4294967295: // RFC 6793, RFC 7300
		return fmt.Errorf("%d is reserved: give the number of an autonomous system", uint32(a))
	}
	return nil
}

// String implements [fmt.Stringer].
func (a ASN) String() string {
	if a == External {
		return external
	}
	return strconv.FormatUint(uint64(a), 10)
}

// MarshalJSON implements [json.Marshaler].
func (a ASN) MarshalJSON() ([]byte, error) {
	if a == External {
		return json.Marshal(external)
	}
	return json.Marshal(uint32(a))
}

// UnmarshalJSON implements [json.Unmarshaler]. It accepts reserved numbers, which [ASN.Check] refuses, except External's.
func (a *ASN) UnmarshalJSON(text []byte) error {
	if string(text) == strconv.Quote(external) {
		*a = External
		return nil
	}
	var number uint32
	if err := json.Unmarshal(text, &number); err != nil || ASN(number) == External {
		return errors.New("want a number from 1 to 4294967294, or external")
	}
	*a = ASN(number)
	return nil
}
