package fence

import (
	"fmt"
	"net/netip"

	"github.com/herald-vip/herald/netutil/ruleset"
)

// Probe says whether a fence can be had here: nil if so, an ErrUnsupported with the
// reason if not. It makes the tables in an empty network namespace of their own, which
// goes at once, so that the host's, and what a Herald gates in them, are not touched.
func Probe() error {
	err := ruleset.Try(func() error {
		k := &nft{}
		defer k.Close()
		return k.rebuild([]netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, 1})}, nil) // TEST-NET-1 (RFC 5737)
	})
	if err != nil {
		return unsupported(err)
	}
	return nil
}

// Left says whether Herald's tables are there, be it that one runs, or that one was killed.
func Left() (bool, error) {
	k := &nft{}
	defer k.Close()
	left, err := k.left()
	if err != nil {
		return false, fmt.Errorf("look for a kernel fence: %w", err)
	}
	return left, nil
}
