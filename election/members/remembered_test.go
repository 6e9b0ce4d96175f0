package members

import (
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/herald-vip/herald/testenv/must"
)

func TestRemembered(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lib", "members")
	if members, err := ReadRemembered(file); err != nil || len(members) > 0 {
		t.Errorf("without a file: %v, %v", members, err)
	}
	want := map[string]netip.AddrPort{"m1": ap("10.0.0.1:7946"), "m2.example": ap("[2001:db8::2]:7946")}
	for range 2 {
		must.Do(t, WriteRemembered(file, want))
		if members, err := ReadRemembered(file); err != nil || !maps.Equal(members, want) {
			t.Errorf("%v, %v", members, err)
		}
	}
	if files, err := os.ReadDir(filepath.Dir(file)); err != nil || len(files) != 1 {
		t.Errorf("%v are left, %v", files, err)
	}
	if _, err := ReadRemembered(filepath.Dir(file)); err == nil {
		t.Error("a directory is read")
	}
	if err := WriteRemembered(filepath.Join(file, "members"), want); err == nil {
		t.Error("a file in a file is written")
	}
	got := parseRemembered([]byte("m1 10.0.0.1:7946\nm2 10.0.0.2\nm3 0.0.0.0:1\nm4 10.0.0.4:0\nm5 ::ffff:10.0.0.5:1\nm6 224.0.0.1:1\n" +
		"m7 [fe80::1%eth0]:1\n\nm8\nm9 10.0.0.9:1 more\n\x00 \xff\n" + strings.Repeat("x", 256) + " 10.0.0.9:1"))
	if !maps.Equal(got, map[string]netip.AddrPort{"m1": want["m1"]}) {
		t.Errorf("of an invalid file: %v", got)
	}
}

// FuzzRemembered reads arbitrary files.
func FuzzRemembered(f *testing.F) {
	f.Add([]byte("m1 10.0.0.1:7946\nm2 [2001:db8::2]:7946\n"))
	f.Add([]byte("m1\t10.0.0.1:7946\r\n\nm2 [fe80::1%x]:1 y"))
	f.Fuzz(func(t *testing.T, b []byte) {
		members := parseRemembered(b)
		if len(members) > MaxRemembered {
			t.Fatalf("%d members", len(members))
		}
		if again := parseRemembered(formatRemembered(members)); !maps.Equal(again, members) {
			t.Fatalf("%v becomes %v", members, again)
		}
	})
}
