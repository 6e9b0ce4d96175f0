package nft

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/netutil/ruleset"
)

// tableName names the table, of family inet.
const tableName = "herald_balancer"

// Names of sets; a suffix 4 or 6 tells the family.
const (
	listen     = "listen"     // map of address and port to the chain of a service; expires
	taken      = "taken"      // address and port (0 is any) with listeners, or with connections from an earlier listener
	masquerade = "masquerade" // address and port; connections to them get this host's address as source
	bridge     = "bridge"     // map of VIPs to their chains; expires
	bridged    = "bridged"    // VIP and master's address
)

// localnet is the set of links on which Herald has set route_localnet.
const localnet = "localnet"

// opening is the conntrack timeout object for half-open connections.
const opening = "opening"

// Names of base chains.
const (
	guard       = "guard"
	prerouting  = "prerouting"
	output      = "output"
	postrouting = "postrouting"
)

// Prefixes of names of chains and maps for each service and VIP. The names can be typed to nft.
const (
	serviceChain = "service" // and the family: chooses a bucket
	bucketMap    = "buckets" // and the family: maps buckets to backends
	backendChain = "to/"
	bridgeChain  = "bridge/"
	masterChain  = "masters/"
)

// family is IPv4 or IPv6.
type family struct {
	version      string
	protocol     byte   // NFPROTO_IPV4, _IPV6
	source, dest uint32 // offsets of addresses in the header
	length       uint32 // of an address, in bytes
	address      nftables.SetDatatype

	ctSource, ctDest expr.CtKey // addresses in conntrack; since Linux 4.17
}

var families = [...]family{ // never changed
	{"4", unix.NFPROTO_IPV4, 12, 16, 4, nftables.TypeIPAddr, unix.NFT_CT_SRC_IP, unix.NFT_CT_DST_IP},
	{"6", unix.NFPROTO_IPV6, 8, 24, 16, nftables.TypeIP6Addr, unix.NFT_CT_SRC_IP6, unix.NFT_CT_DST_IP6},
}

func familyOf(addr netip.Addr) family {
	if addr.Is4() {
		return families[0]
	}
	return families[1]
}

// kind is the type of a set.
type kind struct {
	key     []nftables.SetDatatype
	verdict bool // a map to chains
	expires bool
}

func (f family) kinds() map[string]kind {
	place := []nftables.SetDatatype{f.address, nftables.TypeInetService}
	return map[string]kind{
		listen + f.version:     {key: place, verdict: true, expires: true},
		taken + f.version:      {key: place},
		masquerade + f.version: {key: place},
		bridge + f.version:     {key: []nftables.SetDatatype{f.address}, verdict: true, expires: true},
		bridged + f.version:    {key: []nftables.SetDatatype{f.address, f.address}},
	}
}

var (
	bucketKind   = kind{key: []nftables.SetDatatype{nftables.TypeMark}, verdict: true}
	localnetKind = kind{key: []nftables.SetDatatype{nftables.TypeIFName}}
)

// serviceName and bucketName name the chain and the map of a service for a family.
func serviceName(f family, service string) string { return serviceChain + f.version + "/" + service }
func bucketName(f family, service string) string  { return bucketMap + f.version + "/" + service }

// backendName names the chain that sends connections of a service to a backend.
func backendName(service string, backend netip.AddrPort) string {
	return backendChain + service + "/" + dashed(backend.Addr()) + "/" + strconv.Itoa(int(backend.Port()))
}

func dashed(addr netip.Addr) string { return strings.ReplaceAll(addr.String(), ":", "-") }

// Keys of elements, as in the kernel. Each field is padded to four bytes.

func placeKey(place netip.AddrPort) string {
	return string(append(binary.BigEndian.AppendUint16(place.Addr().AsSlice(), place.Port()), 0, 0))
}

// placeOf is the inverse of placeKey.
func placeOf(key string) (netip.AddrPort, bool) {
	const port = 4
	if len(key) < port {
		return netip.AddrPort{}, false
	}
	addr, ok := netip.AddrFromSlice([]byte(key[:len(key)-port]))
	return netip.AddrPortFrom(addr, binary.BigEndian.Uint16([]byte(key[len(key)-port:]))), ok
}

func addrKey(addrs ...netip.Addr) string {
	var key []byte
	for _, addr := range addrs {
		key = append(key, addr.AsSlice()...)
	}
	return string(key)
}

func bucketKey(i int) string { return string(binary.NativeEndian.AppendUint32(nil, uint32(i))) }

func linkKey(link string) string { return string(ruleset.LinkName(link)) }

func linkOf(key string) string { return strings.TrimRight(key, "\x00") }
