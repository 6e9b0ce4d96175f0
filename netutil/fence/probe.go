package fence

import (
	"net/netip"

	"github.com/herald-vip/herald/netutil/ruleset"
)

// Probe returns nil if this host can have a fence, else an ErrUnsupported with the reason. It makes
// the tables in a temporary network namespace, and does not touch the host's.
func Probe() error {
	return explainUnsupported(ruleset.Try(func() error {
		k := &nft{}
		defer k.Close()
		return k.Rebuild([]netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, 1})}, nil) // TEST-NET-1 (RFC 5737)
	}))
}

// Left reports whether the tables exist: a Herald is running, or was killed.
func Left() (bool, error) {
	k := &nft{}
	defer k.Close()
	left, err := k.Exist(bothTables()...)
	return left, failed("look for a left-over kernel fence", err)
}
