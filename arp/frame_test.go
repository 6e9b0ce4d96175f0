package arp

import (
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"
)

var (
	vip4     = netip.MustParseAddr("10.0.0.99")
	vip6     = netip.MustParseAddr("fd00::99")
	self     = mac{2, 0, 0, 0, 0, 1}
	member   = mac{2, 0, 0, 0, 0, 2}
	outsider = mac{2, 0, 0, 0, 0, 0xee}
)

// The frames match the RFCs byte for byte.
func TestFrames(t *testing.T) {
	padding := strings.Repeat("00", 18)
	for name, tt := range map[string]struct {
		got  []byte
		want []string
	}{
		"ARP announcement, request": {announcement(self, vip4)[0], []string{
			"ffffffffffff 020000000001 0806", "0001 0800 06 04 0001",
			"020000000001 0a000063", "000000000000 0a000063", padding}},
		"ARP announcement, reply": {announcement(self, vip4)[1], []string{
			"ffffffffffff 020000000001 0806", "0001 0800 06 04 0002",
			"020000000001 0a000063", "020000000001 0a000063", padding}},
		"ARP probe": {probe(self, vip4), []string{
			"ffffffffffff 020000000001 0806", "0001 0800 06 04 0001",
			"020000000001 00000000", "000000000000 0a000063", padding}},
		"neighbour advertisement": {announcement(self, vip6)[0], []string{
			"333300000001 020000000001 86dd", "60000000 0020 3a ff",
			"fd000000000000000000000000000099", "ff020000000000000000000000000001",
			"88 00 596b 20000000 fd000000000000000000000000000099", "02 01 020000000001"}},
		"neighbour solicitation": {probe(self, vip6), []string{
			"3333ff000099 020000000001 86dd", "60000000 0018 3a ff",
			"00000000000000000000000000000000", "ff0200000000000000000001ff000099",
			"87 00 7c75 00000000 fd000000000000000000000000000099"}},
	} {
		if want := strings.ReplaceAll(strings.Join(tt.want, ""), " ", ""); hex.EncodeToString(tt.got) != want {
			t.Errorf("%s:\n got %x\nwant %s", name, tt.got, want)
		}
		if len(tt.got) < 60 {
			t.Errorf("%s has %d bytes, shorter than Ethernet allows", name, len(tt.got))
		}
	}
	if n := len(announcement(self, vip6)); n != 1 {
		t.Errorf("%d frames announce an IPv6 address, want 1", n)
	}
}
