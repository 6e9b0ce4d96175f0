package facts

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/testenv/must"
)

const tcpTable = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:2502 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 180 1 00000000bd1e2f8c 100 0 0 10 0
   1: 0100007F:D431 0100007F:2502 01 00000000:00000000 00:00000000 00000000     0        0 181 1 00000000bd1e2f8c 20 4 30 10 -1
   2: 00000000:00B3 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 182 1 00000000bd1e2f8c 100 0 0 10 0
`

const udp6Table = `  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
  17: 00000000000000000000000000000000:0EC8 00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 190 2 0000000012345678 0
  18: 000000FD000000000000000001000000:1F0A 00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 191 2 0000000012345678 0
`

func TestParseSockets(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Log("the tables are of a little-endian machine")
		return
	}
	for _, test := range []struct {
		network, table string
		want           []Socket
	}{
		{"tcp", tcpTable, []Socket{
			{Network: "tcp", Local: netip.MustParseAddrPort("127.0.0.1:9474"), inode: "180"},
			{Network: "tcp", Local: netip.MustParseAddrPort("0.0.0.0:179"), inode: "182"},
		}},
		{"udp", udp6Table, []Socket{
			{Network: "udp", Local: netip.MustParseAddrPort("[::]:3784"), inode: "190"},
			{Network: "udp", Local: netip.MustParseAddrPort("[fd00::1]:7946"), inode: "191"},
		}},
	} {
		if diff := cmp.Diff(test.want, parseSockets(test.network, test.table), compare(), cmp.AllowUnexported(Socket{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.network, diff)
		}
	}
}

func FuzzParseSockets(f *testing.F) {
	f.Add("tcp", tcpTable)
	f.Add("udp", udp6Table)
	f.Fuzz(func(t *testing.T, network, table string) {
		for _, r := range parseSockets(network, table) {
			if !r.Local.IsValid() {
				t.Errorf("%+v", r)
			}
		}
	})
}

// The owner of a socket is found by the open files of processes.
func TestOwners(t *testing.T) {
	root := tree(map[string]string{
		"proc/thread-self/net/tcp": tcpTable,
		"proc/7/comm":              "bird\n",
	}, map[string]string{"proc/7/fd/3": "socket:[182]", "proc/7/fd/4": "/dev/null"})
	f := &Facts{}
	f.lookAtSoftware(root, parsed(t, routedFile))
	bgp := Port{"BGP", "tcp", netip.MustParseAddrPort("[::]:179")}
	if got := f.Owner(bgp); got.PID != 7 || got.Program != "bird" {
		t.Errorf("port 179 is %+v", got)
	}
	metrics := Port{"metrics", "tcp", netip.MustParseAddrPort("127.0.0.1:9474")}
	if got := f.Owner(metrics).String(); got != "a program that is not visible from here" {
		t.Errorf("port 9474 is %s", got)
	}
}

// tryPort reports a taken port, and does not keep a free one.
func TestTryPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	must.Do(t, err)
	for _, taken := range []struct {
		port Port
		end  func() error
	}{
		{Port{"gossip", "tcp", netip.MustParseAddrPort(l.Addr().String())}, l.Close},
		{Port{"gossip", "udp", netip.MustParseAddrPort(packets.LocalAddr().String())}, packets.Close},
	} {
		all := taken.port
		all.Local = netip.AddrPortFrom(netip.IPv6Unspecified(), all.Local.Port())
		for _, p := range []Port{taken.port, all} {
			if err := tryPort(p); !errors.Is(err, syscall.EADDRINUSE) {
				t.Errorf("%+v: %v", p, err)
			}
		}
		must.Do(t, taken.end())
		for range 2 {
			if err := tryPort(taken.port); err != nil {
				t.Errorf("%+v, which is free: %v", taken.port, err)
			}
		}
	}
	if err := tryPort(Port{"gossip", "udp", netip.MustParseAddrPort("192.0.2.1:0")}); err != nil {
		t.Errorf("address of no link: %v", err)
	}
}

// Ports returns all ports of a configuration and no others.
func TestPorts(t *testing.T) {
	var got []string
	for _, p := range append(Ports(parsed(t, routedFile)), Ports(parsed(t, flatFile))...) {
		got = append(got, p.Use+" "+p.Network+" "+p.Local.String())
	}
	want := "metrics tcp 127.0.0.1:9474, BGP tcp [::]:179, BFD udp 0.0.0.0:3784, " +
		"gossip tcp 10.0.1.1:7946, gossip udp 10.0.1.1:7946, metrics tcp 127.0.0.1:9474"
	if diff := cmp.Diff(want, strings.Join(got, ", ")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	c := parsed(t, routedFile)
	for bind, want := range map[string]string{"10.0.1.1:7946": "0.0.0.0:7947", "[fd00:1::1]:7946": "[::]:7947"} {
		c.Election = &electorate.Settings{Bind: netip.MustParseAddrPort(bind)}
		for _, bridge := range []bool{true, false} {
			*c.VIPs[0].Bridge = bridge
			if got := slices.Contains(Ports(c), Port{"second chance", "udp", netip.MustParseAddrPort(want)}); got != bridge {
				t.Errorf("a member at %s, bridge: %t: is %s among the ports: %t", bind, bridge, want, got)
			}
		}
	}
	c = parsed(t, flatFile)
	for _, listen := range []string{"", "localhost:9474", "127.0.0.1:0"} { // off, a host name, any port
		c.Metrics.Listen = listen
		for _, p := range Ports(c) {
			if p.Use == "metrics" {
				t.Errorf("%q: %+v", listen, p)
			}
		}
	}
}

// reach tells TCP and UDP of a member apart.
func TestReach(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	defer l.Close()
	member := netip.MustParseAddrPort(l.Addr().String())
	own := netip.MustParseAddrPort("127.0.0.2:0")
	f := &Facts{Host: host("127.0.0.2/8")}
	if got := f.reach(t.Context(), own, member); got != (Reach{Accepted, Refused}) { // the UDP port is closed
		t.Errorf("TCP only: %+v", got)
	}
	packets, err := net.ListenPacket("udp", member.String())
	must.Do(t, err)
	defer packets.Close()
	if got := f.reach(t.Context(), own, member); got != (Reach{Accepted, Silent}) {
		t.Errorf("TCP and UDP: %+v", got)
	}
	l.Close()
	packets.Close()
	if got := f.reach(t.Context(), own, member); got != (Reach{Refused, Refused}) {
		t.Errorf("neither: %+v", got)
	}
	f.Host = host("10.0.1.1/24")
	if got := f.reach(t.Context(), own, member); got.UDP != Unasked {
		t.Errorf("own address on no link: %+v", got)
	}
}
