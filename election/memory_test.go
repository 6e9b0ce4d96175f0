package election

import (
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestMemory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lib", "members")
	if members, err := recall(file); err != nil || len(members) > 0 {
		t.Errorf("of no file: %v, %v", members, err)
	}
	want := map[string]netip.AddrPort{"m1": ap("10.0.0.1:7946"), "m2.example": ap("[2001:db8::2]:7946")}
	for range 2 {
		if err := memorize(file, want); err != nil {
			t.Fatal(err)
		}
		if members, err := recall(file); err != nil || !maps.Equal(members, want) {
			t.Errorf("%v, %v", members, err)
		}
	}
	if files, err := os.ReadDir(filepath.Dir(file)); err != nil || len(files) != 1 {
		t.Errorf("%v are left, %v", files, err)
	}
	if _, err := recall(filepath.Dir(file)); err == nil {
		t.Error("a directory is read")
	}
	if err := memorize(filepath.Join(file, "members"), want); err == nil {
		t.Error("a file in a file is written")
	}
	got := parseMemory([]byte("m1 10.0.0.1:7946\nm2 10.0.0.2\nm3 0.0.0.0:1\nm4 10.0.0.4:0\nm5 ::ffff:10.0.0.5:1\nm6 224.0.0.1:1\n" +
		"m7 [fe80::1%eth0]:1\n\nm8\nm9 10.0.0.9:1 more\n\x00 \xff\n" + strings.Repeat("x", 256) + " 10.0.0.9:1"))
	if !maps.Equal(got, map[string]netip.AddrPort{"m1": want["m1"]}) {
		t.Errorf("of nonsense: %v", got)
	}
}

// FuzzMemory reads what may be in the file.
func FuzzMemory(f *testing.F) {
	f.Add([]byte("m1 10.0.0.1:7946\nm2 [2001:db8::2]:7946\n"))
	f.Add([]byte("m1\t10.0.0.1:7946\r\n\nm2 [fe80::1%x]:1 y"))
	f.Fuzz(func(t *testing.T, b []byte) {
		members := parseMemory(b)
		if len(members) > maxRemembered {
			t.Fatalf("%d members", len(members))
		}
		if again := parseMemory(formatMemory(members)); !maps.Equal(again, members) {
			t.Fatalf("%v becomes %v", members, again)
		}
	})
}

// All masters that a worker's file names are replaced while it is down.
func TestWorkerRemembersMasters(t *testing.T) {
	workers(t, 2, func(t *testing.T, f *fabric, c *cluster, masters, workers []*member) {
		file := filepath.Join(t.TempDir(), "members")
		w, forgetful := workers[0], workers[1]
		w.apply(func(c *Config) { c.Remember = file })
		now := masters
		for i, name := range []string{"m4", "m5", "m6"} {
			now = append(now, c.master(name, 3+i, now...))
			time.Sleep(10 * time.Second)
			now[0].retire(now[1:]...)
			now = now[1:]
			time.Sleep(10 * time.Second)
			if i == 1 { // three are there whom it knows, of whom one will stay
				w.crash()
				forgetful.crash()
			}
		}
		w.apply(nil)
		forgetful.apply(nil)
		within(t, time.Second, "m4 m5 m6", w)
		time.Sleep(10 * time.Second)
		if all := forgetful.Offers(); len(all) > 0 {
			t.Errorf("who remembers nobody knows %v", all)
		}
		if members, err := recall(file); err != nil || len(members) != 3 || members["m6"] != now[2].home {
			t.Errorf("it remembers %v, %v", members, err)
		}
	})
}
