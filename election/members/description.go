package members

import (
	"errors"
	"net"
	"strings"
)

// descriptionVersion is the first byte of a description. Receivers ignore appended data, and the whole description if
// its version differs.
const descriptionVersion = 1

const (
	// maxHardware is the maximum length of a hardware address: InfiniBand's.
	maxHardware = 20
	maxIdentity = 31
	hasIdentity = 128 // flag in a length byte: an identity follows
)

// Description is a member's node metadata in memberlist: the hardware addresses at which its VIPs may appear, and the
// number of its candidacies. Any holder of the key can claim anything in it. Only Identity has an effect: with the name
// and the address, it determines the member.
type Description struct {
	Hardware  []net.HardwareAddr
	Campaigns int    // up to 65,535
	Identity  string // of a member that has one; up to 31 bytes
}

// append encodes a description in up to limit bytes, with as many hardware addresses as fit.
//
//	version(1) campaigns(2) { 128+length(1) identity }? { length(1) address }...
func (d Description) append(b []byte, limit int) []byte {
	campaigns := min(d.Campaigns, 1<<16-1)
	b = append(b, descriptionVersion, byte(campaigns>>8), byte(campaigns))
	if d.Identity != "" && len(d.Identity) <= maxIdentity {
		b = append(append(b, hasIdentity|byte(len(d.Identity))), d.Identity...)
	}
	for _, mac := range d.Hardware {
		if len(mac) == 0 || len(mac) > maxHardware {
			continue
		}
		if len(b)+1+len(mac) > limit {
			break
		}
		b = append(b, byte(len(mac)))
		b = append(b, mac...)
	}
	return b
}

var errDescription = errors.New("cannot parse the description of a member")

func parseDescription(b []byte) (Description, error) {
	if len(b) < 3 || b[0] != descriptionVersion {
		return Description{}, errDescription
	}
	d := Description{Campaigns: int(b[1])<<8 | int(b[2])}
	for b = b[3:]; len(b) > 0; {
		n := int(b[0])
		if id := n &^ hasIdentity; d.Identity == "" && d.Hardware == nil && n > hasIdentity && id <= maxIdentity && id < len(b) {
			d.Identity, b = string(b[1:1+id]), b[1+id:]
			if strings.ContainsAny(d.Identity, "@#") {
				return Description{}, errDescription
			}
			continue
		}
		if n == 0 || n > maxHardware || n > len(b)-1 {
			return Description{}, errDescription
		}
		d.Hardware = append(d.Hardware, append(net.HardwareAddr(nil), b[1:1+n]...))
		b = b[1+n:]
	}
	return d, nil
}
