package soak

import "testing"

func TestRaces(t *testing.T) {
	report := func(write, read string) string {
		return "level=INFO\n==================\nWARNING: DATA RACE\nWrite at 0x00c001127200 by goroutine 44:\n  " + write + "\n      file.go:1 +0x1\n\nPrevious read at 0x00c001127200 by goroutine 32:\n  " + read + "\n      file.go:2 +0x2\n==================\nlevel=INFO\n"
	}
	const gobgp, herald = "github.com/osrg/gobgp/v4/pkg/server.(*fsmHandler).active()", "github.com/herald-vip/herald/bgp.(*Server).run()"
	for name, tt := range map[string]struct {
		log  string
		want int
	}{
		"none":                 {"level=INFO msg=\"herald runs\"\n", 0},
		"Herald's":             {report(herald, herald), 1},
		"Herald and GoBGP":     {report(herald, gobgp), 1},
		"GoBGP and Herald":     {report(gobgp, herald), 1},
		"the standard library": {report("runtime.mapassign()", "runtime.mapaccess1()"), 1},
		"GoBGP's own":          {report(gobgp, gobgp), 0},
		"two":                  {report(gobgp, gobgp) + report(herald, herald), 1},
		"cut off":              {"==================\nWARNING: DATA RACE\nWrite at 0x1 by goroutine 4:", 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := races(tt.log); len(got) != tt.want {
				t.Errorf("%d races, want %d: %q", len(got), tt.want, got)
			}
		})
	}
}
