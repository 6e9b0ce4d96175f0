package electorate

import (
	"encoding/json"
	"errors"
	"net/netip"
	"time"
)

// Settings configure how members find each other, advertise their health, and agree on the holder of each VIP with `announce: arp`. A holder needs a lease that a majority grants.
type Settings struct {
	// Bind is the address and port of this node's gossip and votes, UDP and TCP. Default: the node's own of `members`; for a node that is not listed, the address from which it reaches the members, with their port.
	Bind netip.AddrPort `yaml:"bind"`
	// Members are all nodes that vote, by nodeName, each with its address and port; the same on every node. An unlisted node with a `services` section, `balancers` or a `bind` takes part without a vote. The members agree on a changed list once all members it names have it. Required unless `join` or `bootstrap` is given.
	Members map[string]netip.AddrPort `yaml:"members"`
	// Join lists where this node looks for members, each an address and port, in place of `members`: the voters then come and go by themselves. A node with VIPs by `announce: arp` gets a vote once it campaigns for one, as its checks pass, if that makes an odd number of voters, up to seven.
	Join []netip.AddrPort `yaml:"join"`
	// Bootstrap makes this node begin the cluster that others join, if it has never been in one and finds none at `join`: on one node only. Default: false.
	Bootstrap bool `yaml:"bootstrap"`
	// Forget is how long a voter may be silent before it loses its vote, 1m to 720h, or a minute if another member can replace it. It keeps the vote while an even number would remain. `herald member remove` does not wait. With `join` or `bootstrap` only. Default: 4h.
	Forget *time.Duration `yaml:"forget" want:"1m to 720h"`
	// KeyFile holds the key that encrypts the members' messages, as `herald keygen` writes it: base64 of 16, 24 or 32 bytes. Of several lines the first encrypts and all decrypt: a new key becomes the second line on all nodes, then the first, then the only one. It is read again when it changes. Required unless `insecure: true`.
	KeyFile string `yaml:"keyFile"`
	// Keys are the content of KeyFile, never part of the file itself. No two are the same.
	Keys [][]byte `yaml:"-"`
	// Insecure sends all messages in the clear and believes every sender: anybody on the network can take the VIP. Default: false.
	Insecure bool `yaml:"insecure"`
	// Lease is how long a holder that falls silent keeps its VIP, 150ms to 10s, the same on every node. It is renewed at a third of it; below 500ms with `realtime: true`. Default: 600ms.
	Lease time.Duration `yaml:"lease" default:"600ms" want:"150ms to 10s"`
	// Quorum selects the votes that a holder needs: `majority`, more than half of all members, or `none`, all members it can reach. With `none`, two nodes that cannot reach each other both hold the VIP. It is for sites of two that prefer that to no holder. Default: majority.
	Quorum Quorum `yaml:"quorum"`
}

// Open reports whether members come and go by themselves, in place of a list.
func (s *Settings) Open() bool { return len(s.Join) > 0 || s.Bootstrap }

// UnmarshalJSON reads the name of a quorum, as the file has it and [Quorum.String] writes it. The state on disk holds a
// number instead: [Electorate] and [Committed] read it.
func (q *Quorum) UnmarshalJSON(b []byte) error {
	var name string
	if err := json.Unmarshal(b, &name); err != nil || name != Majority.String() && name != None.String() {
		return errors.New("want majority or none")
	}
	*q = Majority
	if name == None.String() {
		*q = None
	}
	return nil
}
