// Package asn is the numbers of autonomous systems as they are written.
package asn

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/herald-vip/herald/internal/text"
)

var errRange = errors.New("give a number from 1 to 4294967294")

// Parse reads a number that an autonomous system may have.
func Parse(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%w, got %q", errRange, text.Short(s, 32))
	}
	return uint32(n), Check(uint32(n))
}

// Check refuses a number that no autonomous system has.
func Check(n uint32) error {
	switch n {
	case 0: // RFC 7607
		return errRange
	case 23456, 65535, 4294967295: // RFC 6793, RFC 7300
		return fmt.Errorf("%d is reserved: give the number of an autonomous system", n)
	}
	return nil
}

// Peer is the number of a peer's autonomous system, or External. In JSON and YAML it is a number or a word.
type Peer uint32

// External is any number but the own one. It stands where there can be no number (RFC 7300).
const External Peer = math.MaxUint32

const external = "external"

// String implements [fmt.Stringer].
func (a Peer) String() string {
	if a == External {
		return external
	}
	return strconv.FormatUint(uint64(a), 10)
}

// MarshalJSON implements [json.Marshaler].
func (a Peer) MarshalJSON() ([]byte, error) {
	if a == External {
		return json.Marshal(external)
	}
	return json.Marshal(uint32(a))
}

// UnmarshalJSON implements [json.Unmarshaler]. It takes what [Check] may refuse, except for the number that is External's.
func (a *Peer) UnmarshalJSON(text []byte) error {
	if string(text) == strconv.Quote(external) {
		*a = External
		return nil
	}
	var number uint32
	if err := json.Unmarshal(text, &number); err != nil || Peer(number) == External {
		return errors.New("want a number from 1 to 4294967294, or external")
	}
	*a = Peer(number)
	return nil
}
