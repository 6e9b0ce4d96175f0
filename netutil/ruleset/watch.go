package ruleset

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/internal/wake"
)

// Watch subscribes to changes of nftables, and sends to changed, without waiting, after
// one that matters. stop waits for the goroutine. netns is as in [Socket].
func Watch(netns int, changed chan<- struct{}, matters func(netlink.Message) bool) (stop func(), err error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: netns})
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
			case errors.Is(err, unix.ENOBUFS): // some changes were lost, and one of them may matter
			case err != nil: // it is closed
				return
			case !slices.ContainsFunc(messages, matters):
				continue
			}
			wake.Up(changed)
		}
	})
	return func() { _ = conn.Close(); reader.Wait() }, nil
}

// Change says what has changed in which table.
type Change struct {
	Table string
	Set   string // whose elements have changed; empty if it is about something else
}

// Read reads a message that [Watch] was sent; ok is false if it is no such change.
func Read(m netlink.Message) (c Change, ok bool) {
	const (
		nftables = unix.NFNL_SUBSYS_NFTABLES << 8
		header   = 4 // of netfilter's, before the attributes

		// These are the first attributes of every message, except one that only counts changes.
		ofTable, ofSet = unix.NFTA_SET_ELEM_LIST_TABLE, unix.NFTA_SET_ELEM_LIST_SET
	)
	if m.Header.Type&^0xff != nftables || len(m.Data) < header {
		return Change{}, false
	}
	attributes, err := netlink.NewAttributeDecoder(m.Data[header:])
	if err != nil {
		return Change{}, false
	}
	elements := m.Header.Type == nftables|unix.NFT_MSG_NEWSETELEM || m.Header.Type == nftables|unix.NFT_MSG_DELSETELEM
	for attributes.Next() {
		switch attributes.Type() {
		case ofTable:
			c.Table = attributes.String()
		case ofSet:
			if elements {
				c.Set = attributes.String()
			}
		}
	}
	return c, true
}
