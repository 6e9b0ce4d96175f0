package fence

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// watch has the kernel tell of changes, each of which it passes on to told unless
// there is one to be looked at already. stop returns when nothing of it is left.
func (k *nft) watch(told chan<- struct{}) (stop func(), err error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: k.netns})
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	if err := conn.JoinGroup(unix.NFNLGRP_NFTABLES); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("subscribe to changes of nftables: %w", err)
	}
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			messages, err := conn.Receive()
			switch {
			case errors.Is(err, unix.ENOBUFS): // some were lost, of which one may matter
			case err != nil: // it is closed
				return
			case !slices.ContainsFunc(messages, touches):
				continue
			}
			select {
			case told <- struct{}{}:
			default:
			}
		}
	})
	return func() { _ = conn.Close(); reader.Wait() }, nil
}

// touches is whether a message tells of a change after which Herald's tables may be
// incomplete. Openings are not, which come several times a second: of all the
// elements only those of what is gated count.
func touches(m netlink.Message) bool {
	const (
		nftables = unix.NFNL_SUBSYS_NFTABLES << 8
		header   = 4 // of netfilter's, before the attributes

		// Whatever the message is about, its first attributes are these, but for one that
		// only counts changes.
		ofTable, ofSet = unix.NFTA_SET_ELEM_LIST_TABLE, unix.NFTA_SET_ELEM_LIST_SET
	)
	if m.Header.Type&^0xff != nftables || len(m.Data) < header {
		return false
	}
	attributes, err := netlink.NewAttributeDecoder(m.Data[header:])
	if err != nil {
		return false
	}
	elements := m.Header.Type == nftables|unix.NFT_MSG_NEWSETELEM || m.Header.Type == nftables|unix.NFT_MSG_DELSETELEM
	ours, gated := false, false
	for attributes.Next() {
		switch attributes.Type() {
		case ofTable:
			ours = attributes.String() == tableName
		case ofSet:
			gated = strings.HasPrefix(attributes.String(), string(vips)) || strings.HasPrefix(attributes.String(), string(services))
		}
	}
	return ours && (gated || !elements)
}
