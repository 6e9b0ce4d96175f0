package members

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"unicode"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/wire"
	"github.com/herald-vip/herald/internal/disk"
)

// descriptionVersion is the first byte of a description. Receivers ignore appended data, and the whole description if
// its version differs.
const descriptionVersion = 1

const (
	// maxHardware is the maximum length of a hardware address: InfiniBand's.
	maxHardware = 20
	maxIdentity = 31
	hasIdentity = 128 // flag in a length byte: an identity follows
	hasOrigin   = 64  // likewise: an address follows
	hasFlags    = 1   // no hardware address is so short: flags follow. Earlier releases see an address that matches none.

	flagClustered  = 1 << 0
	flagBootstraps = 1 << 1
)

// Description is a member's node metadata in memberlist: the hardware addresses at which its VIPs may appear, and the
// number of its candidacies. Any holder of the key can claim anything in it. Three fields have an effect. Identity and
// Origin determine the member, with its name. Standing keeps others from beginning a cluster.
type Description struct {
	Hardware  []net.HardwareAddr
	Campaigns int    // up to 65,535
	Identity  string // of a member that has one; up to 31 bytes
	electorate.Standing
	// Origin is the address in the member's name, if it has another now. Earlier releases ignore descriptions with it.
	Origin netip.AddrPort
}

// append encodes a description in up to limit bytes, with as many hardware addresses as fit.
//
//	version(1) campaigns(2) { 128+length(1) identity }? { 1(1) flags(1) }? { 64+length(1) origin }? { length(1) address }...
func (d Description) append(b []byte, limit int) []byte {
	campaigns := min(d.Campaigns, 1<<16-1)
	b = append(b, descriptionVersion, byte(campaigns>>8), byte(campaigns))
	if d.Identity != "" && len(d.Identity) <= maxIdentity {
		b = append(append(b, hasIdentity|byte(len(d.Identity))), d.Identity...)
	}
	if flags := wire.Flag(flagClustered, d.Clustered) | wire.Flag(flagBootstraps, d.Bootstraps); flags != 0 {
		b = append(b, hasFlags, flags)
	}
	if origin, err := d.Origin.MarshalBinary(); err == nil && d.Origin.IsValid() {
		b = append(append(b, hasOrigin|byte(len(origin))), origin...)
	}
	for _, mac := range d.Hardware {
		if len(mac) <= hasFlags || len(mac) > maxHardware {
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
		kind, size := b[0]&(hasIdentity|hasOrigin), int(b[0]&^(hasIdentity|hasOrigin))
		if size == 0 || size >= len(b) {
			return Description{}, errDescription
		}
		value := b[1 : 1+size]
		b = b[1+size:]
		switch {
		case kind == hasIdentity && d.Identity == "" && d.Hardware == nil && size <= maxIdentity && !bytes.ContainsAny(value, "@#"):
			d.Identity = string(value)
		case kind == hasOrigin && !d.Origin.IsValid() && d.Hardware == nil && (size == 6 || size == 18):
			if err := d.Origin.UnmarshalBinary(value); err != nil || !d.Origin.IsValid() {
				return Description{}, errDescription
			}
		case kind == 0 && size == hasFlags:
			d.Clustered, d.Bootstraps = value[0]&flagClustered != 0, value[0]&flagBootstraps != 0
		case kind == 0 && size <= maxHardware:
			d.Hardware = append(d.Hardware, bytes.Clone(value))
		default:
			return Description{}, errDescription
		}
	}
	return d, nil
}

const (
	// maxFile limits the size read from the file of remembered members in bytes, and MaxRemembered their number.
	maxFile       = 16 << 10
	MaxRemembered = 64
)

// ReadRemembered reads the members that were present at the previous run. A missing file yields none, and invalid lines
// are skipped: the configured members are asked anyway.
func ReadRemembered(file string) (map[string]netip.AddrPort, error) {
	if file == "" {
		return nil, nil
	}
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the remembered members: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return nil, fmt.Errorf("read the remembered members: %w", err)
	}
	return parseRemembered(b), nil
}

// parseRemembered parses lines of a name and an address, up to MaxRemembered.
func parseRemembered(b []byte) map[string]netip.AddrPort {
	members := make(map[string]netip.AddrPort)
	for lines := bufio.NewScanner(bytes.NewReader(b)); len(members) < MaxRemembered && lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) != 2 || len(fields[0]) > 255 {
			continue
		}
		at, err := netip.ParseAddrPort(fields[1])
		addr := at.Addr()
		if err != nil || at.Port() == 0 || addr.Zone() != "" || addr.Is4In6() || addr.IsUnspecified() || addr.IsMulticast() {
			continue
		}
		members[fields[0]] = at
	}
	return members
}

func formatRemembered(members map[string]netip.AddrPort) []byte {
	var b bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if !strings.ContainsFunc(name, unicode.IsSpace) {
			fmt.Fprintln(&b, name, members[name])
		}
	}
	return b.Bytes()
}

// WriteRemembered replaces the file with these members atomically.
func WriteRemembered(file string, members map[string]netip.AddrPort) error {
	if err := disk.Replace(file, formatRemembered(members)); err != nil {
		return fmt.Errorf("write the remembered members: %w", err)
	}
	return nil
}
