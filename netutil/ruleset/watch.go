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

// Watch subscribes to nftables changes and wakes changed after each change that matters, or after the kernel
// lost some. stop waits for the goroutine.
func (s *Socket) Watch(changed chan<- struct{}, matters func(Change) bool) (stop func(), err error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: s.NetNS})
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	if err := conn.JoinGroup(unix.NFNLGRP_NFTABLES); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("subscribe to nftables changes: %w", err)
	}
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			messages, err := conn.Receive()
			switch {
			case errors.Is(err, unix.ENOBUFS): // the kernel lost changes, and a lost one may matter
			case err != nil: // closed
				return
			case !slices.ContainsFunc(messages, func(m netlink.Message) bool { c, ok := Read(m); return ok && matters(c) }):
				continue
			}
			wake.Up(changed)
		}
	})
	return func() { _ = conn.Close(); reader.Wait() }, nil
}

// Change names the changed part of a table.
type Change struct {
	Table   string
	Set     string // set with changed elements; empty for any other change
	Deleted bool   // the table was deleted
}

// Read decodes a message of the kernel about a change. It reports false for messages of other subsystems.
func Read(m netlink.Message) (c Change, ok bool) {
	const (
		nftables = unix.NFNL_SUBSYS_NFTABLES << 8
		header   = 4 // size of netfilter's header before the attributes

		// The first attributes of every message except NFT_MSG_NEWGEN.
		tableAttr, setAttr = unix.NFTA_SET_ELEM_LIST_TABLE, unix.NFTA_SET_ELEM_LIST_SET
	)
	if m.Header.Type&^0xff != nftables || len(m.Data) < header {
		return Change{}, false
	}
	attributes, err := netlink.NewAttributeDecoder(m.Data[header:])
	if err != nil {
		return Change{}, false
	}
	c.Deleted = m.Header.Type == nftables|unix.NFT_MSG_DELTABLE
	elements := m.Header.Type == nftables|unix.NFT_MSG_NEWSETELEM || m.Header.Type == nftables|unix.NFT_MSG_DELSETELEM
	for attributes.Next() {
		switch attributes.Type() {
		case tableAttr:
			c.Table = attributes.String()
		case setAttr:
			if elements {
				c.Set = attributes.String()
			}
		}
	}
	return c, true
}
