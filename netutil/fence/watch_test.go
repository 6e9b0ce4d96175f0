package fence

import (
	"bytes"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/netutil/ruleset"
)

// Watch reports each change of the fence's tables by another program.
func TestVandalsAreSeen(t *testing.T) {
	h := newHost(t)
	f := h.fence()
	for _, command := range vandalism {
		h.Must(f.Filter(vip.addrs()...))
		h.Must(f.Check())
		if !h.touched(f, func() { h.NFT(command) }) {
			t.Errorf("%q is not reported", command)
		}
	}
}

// Watch reports neither the fence's own changes nor changes of other tables.
func TestRenewalsAreNotSeen(t *testing.T) {
	h := newHost(t)
	f := h.fence()
	h.Must(f.Filter(vip.addrs()...))
	for name, test := range map[string]struct {
		do   func()
		want bool
	}{
		"opening":         {func() { h.open(f.Open, vip.addrs()...) }, false},
		"lingering":       {func() { h.open(f.Accept, vip.addrs()...) }, false},
		"closing":         {func() { h.Must(f.Close(vip.addrs()...)) }, false},
		"looking":         {func() { h.Must(f.Check()) }, false},
		"another's locks": {func() { h.NFT("add element arp herald answer4 { 10.9.0.100 timeout 1m }") }, true},
		"others": {func() {
			h.NFT("table inet filter { set vips4 { type ipv4_addr; elements = { 10.9.0.100 } }; }")
		}, false},
		"a flush": {func() { h.NFT("flush ruleset") }, true},
	} {
		if got := h.touched(f, test.do); got != test.want {
			t.Errorf("%s: affects the fence's tables: %v, want %v", name, got, test.want)
		}
		h.Must(f.Check())
	}
}

// touched reports whether a kernel message sent during do is about another program's change of the fence's tables.
func (h *host) touched(f *Fence, do func()) (yes bool) {
	h.T.Helper()
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: int(h.NS)})
	h.Must(err)
	defer conn.Close()
	h.Must(conn.JoinGroup(unix.NFNLGRP_NFTABLES))
	h.Must(conn.SetReadDeadline(time.Now().Add(patience)))
	do()
	const end = "the-end"
	h.NFT("add table ip " + end)
	for {
		messages, err := conn.Receive()
		h.Must(err)
		for _, m := range messages {
			yes = yes || f.kernel.(*nft).Foreign(m, tableName)
			if bytes.Contains(m.Data, []byte(end)) {
				h.NFT("delete table ip " + end)
				return yes
			}
		}
	}
}

// Messages of other subsystems affect nothing.
func FuzzTouches(f *testing.F) {
	f.Add(uint16(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_DELSETELEM), []byte("\x01\x00\x00\x00\x0b\x00\x01\x00herald\x00\x00\x0a\x00\x02\x00vips4\x00\x00\x00"))
	f.Add(uint16(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_DELTABLE), []byte("\x01\x00\x00\x00\x0b\x00\x01\x00herald\x00\x00"))
	f.Add(uint16(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWGEN), []byte("\x00\x00\x00\x00\x08\x00\x01\x00\x00\x00\x00\x07"))
	f.Fuzz(func(t *testing.T, kind uint16, data []byte) {
		yes := (&ruleset.Socket{}).Foreign(netlink.Message{Header: netlink.Header{Type: netlink.HeaderType(kind), PID: 1}, Data: data}, tableName)
		if yes && (kind>>8 != unix.NFNL_SUBSYS_NFTABLES || !bytes.Contains(data, []byte(tableName))) {
			t.Errorf("message %d %q affects the fence's tables", kind, data)
		}
	})
}
