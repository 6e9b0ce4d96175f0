package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ParseCommunity reads an RFC 1997 community: two numbers of 16 bits as in
// 65000:100, or a well-known name.
func ParseCommunity(s string) (uint32, error) {
	switch s {
	case "graceful-shutdown": // RFC 8326
		return 0xffff0000, nil
	case "blackhole": // RFC 7999
		return 0xffff029a, nil
	case "no-export": // RFC 1997
		return 0xffffff01, nil
	case "no-advertise": // RFC 1997
		return 0xffffff02, nil
	case "no-export-subconfed": // RFC 1997
		return 0xffffff03, nil
	case "no-peer": // RFC 3765
		return 0xffffff04, nil
	}
	n, ok := numbers(s, 2, 16)
	if !ok {
		return 0, fmt.Errorf("want a community such as 65000:100 or no-export, got %s", quote(s))
	}
	return n[0]<<16 | n[1], nil
}

// ParseLargeCommunity reads an RFC 8092 large community: three numbers of 32 bits as in 64512:1:2.
func ParseLargeCommunity(s string) ([3]uint32, error) {
	n, ok := numbers(s, 3, 32)
	if !ok {
		return [3]uint32{}, fmt.Errorf("want a large community such as 64512:1:2, got %s", quote(s))
	}
	if n[0] == math.MaxUint32 { // RFC 8092 section 5; package bgp marks routes with it
		return [3]uint32{}, fmt.Errorf("the number %d is reserved, got %s", n[0], quote(s))
	}
	return [3]uint32(n), nil
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
