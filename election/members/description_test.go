package members

import (
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/memberlist"
)

func mac(t testing.TB, s string) net.HardwareAddr {
	t.Helper()
	m, err := net.ParseMAC(s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestDescriptionTravels(t *testing.T) {
	for name, c := range map[string]Description{
		"empty":      {},
		"one":        {Hardware: []net.HardwareAddr{mac(t, "02:00:00:00:00:01")}, Campaigns: 3},
		"InfiniBand": {Hardware: []net.HardwareAddr{mac(t, strings.TrimSuffix(strings.Repeat("01:", 20), ":")), mac(t, "02:00:00:00:00:01")}},
		"many":       {Campaigns: 65535},
		"identity":   {Identity: "5f3a0c11", Hardware: []net.HardwareAddr{mac(t, "02:00:00:00:00:01")}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseDescription(c.append(nil, memberlist.MetaMaxSize))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c, got); diff != "" {
				t.Fatal(diff)
			}
		})
	}
}

func TestDescriptionFits(t *testing.T) {
	var c Description
	for range 200 {
		c.Hardware = append(c.Hardware, mac(t, "02:00:00:00:00:01"))
	}
	c.Campaigns = 1 << 20
	b := c.append(nil, memberlist.MetaMaxSize)
	got, err := parseDescription(b)
	if err != nil {
		t.Fatal(err)
	}
	if len(b) > memberlist.MetaMaxSize || len(got.Hardware) != (memberlist.MetaMaxSize-3)/7 || got.Campaigns != 65535 {
		t.Fatalf("%d bytes with %d addresses, %d candidacies", len(b), len(got.Hardware), got.Campaigns)
	}
}

func FuzzParseDescription(f *testing.F) {
	f.Add(Description{Hardware: []net.HardwareAddr{mac(f, "02:00:00:00:00:01")}, Campaigns: 2}.append(nil, memberlist.MetaMaxSize))
	f.Add([]byte{2, 0, 0})
	f.Add([]byte{1, 0, 0, 6, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := parseDescription(b)
		if err != nil {
			return
		}
		if again := c.append(nil, len(b)); string(again) != string(b) {
			t.Fatalf("%x became %x", b, again)
		}
	})
}
