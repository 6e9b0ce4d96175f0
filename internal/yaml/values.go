package yaml

import (
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
)

// File reports a path that is not absolute: a daemon's working directory is never intended. The report does not
// repeat the value, as it may be a secret. An empty name passes.
func (r *Report) File(p Path, name string) {
	if name != "" && !filepath.IsAbs(name) {
		r.Errorf(p, "want the absolute path of a file")
	}
}

// RequiredFile is [Report.File], and reports an empty name as well.
func (r *Report) RequiredFile(p Path, name string) {
	if name == "" {
		r.Errorf(p, "missing: give the absolute path of a file")
	}
	r.File(p, name)
}

// HostPort reports an address that is empty or that nothing can connect to.
func (r *Report) HostPort(p Path, address string) {
	switch {
	case address == "":
		r.Errorf(p, "missing: give host:port")
	case !IsHostPort(address, false):
		r.Errorf(p, "want host:port such as 127.0.0.1:5001, got %s", Quote(address))
	}
}

// IsHostPort reports whether s is host:port. If listen is set, the host may be empty and the port 0.
func IsHostPort(s string, listen bool) bool {
	host, port, err := net.SplitHostPort(s)
	if err != nil || strings.ContainsAny(host, " /") {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && (listen || host != "" && n > 0)
}

// Link reports a name that is empty or that no link can have.
func (r *Report) Link(p Path, name string) {
	const limit = 15 // IFNAMSIZ less its final zero
	switch {
	case name == "":
		r.Errorf(p, "missing: give the name of a link")
	case len(name) > limit || name == "." || name == ".." || strings.ContainsAny(name, "/: \t"):
		r.Errorf(p, "want the name of a link, at most %d characters, got %s", limit, Quote(name))
	}
}

// IsUnicast reports whether addr can be the address of one host.
func IsUnicast(addr netip.Addr) bool {
	return !addr.IsUnspecified() && !addr.IsMulticast() && addr != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}
