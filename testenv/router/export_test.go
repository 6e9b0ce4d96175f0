package router

import "net/netip"

// The pure parts of the decision, for their tables.
var (
	SelectPaths = selectPaths
	ReadPath    = readPath
	ErrWithdraw = errWithdrawn
)

// Diff is diff.
func Diff(have, want map[netip.Prefix][]netip.Addr) (replace, remove []netip.Prefix) {
	return diff(have, want)
}
