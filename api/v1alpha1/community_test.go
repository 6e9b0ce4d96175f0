package v1alpha1_test

import (
	"testing"

	"github.com/herald-vip/herald/api/v1alpha1"
)

func TestParseCommunity(t *testing.T) {
	for s, want := range map[string]v1alpha1.Community{
		"0:0":                 0,
		"64512:100":           64512<<16 | 100,
		"65535:65535":         0xffffffff,
		"graceful-shutdown":   65535 << 16,
		"blackhole":           65535<<16 | 666,
		"no-export":           65535<<16 | 65281,
		"no-advertise":        65535<<16 | 65282,
		"no-export-subconfed": 65535<<16 | 65283,
		"no-peer":             65535<<16 | 65284,
	} {
		if got, err := v1alpha1.ParseCommunity(s); err != nil || got != want {
			t.Errorf("Parse(%q) = %#x, %v, want %#x", s, uint32(got), err, uint32(want))
		}
	}
	for _, s := range []string{"", ":", "1", "1:", "1:2:3", "65536:0", "0:65536", "-1:0", "+1:0", "1: 2", "0x1:0", "No-Export"} {
		if got, err := v1alpha1.ParseCommunity(s); err == nil {
			t.Errorf("Parse(%q) = %#x, want an error", s, uint32(got))
		}
	}
}

func TestParseLargeCommunity(t *testing.T) {
	for s, want := range map[string]v1alpha1.LargeCommunity{
		"0:0:0":                            {},
		"64512:1:2":                        {Global: 64512, Local1: 1, Local2: 2},
		"4294967294:4294967295:4294967295": {Global: 1<<32 - 2, Local1: 1<<32 - 1, Local2: 1<<32 - 1},
	} {
		if got, err := v1alpha1.ParseLargeCommunity(s); err != nil || got != want {
			t.Errorf("ParseLarge(%q) = %v, %v, want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "1:2", "1:2:3:4", "1:2:4294967296", "1:2:-3", "4294967295:1:2", "no-export"} {
		if got, err := v1alpha1.ParseLargeCommunity(s); err == nil {
			t.Errorf("ParseLarge(%q) = %v, want an error", s, got)
		}
	}
}
