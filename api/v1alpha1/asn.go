package v1alpha1

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/herald-vip/herald/internal/text"
)

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
