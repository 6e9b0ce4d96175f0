package daemon

import (
	"testing"
	"time"

	"github.com/herald-vip/herald/config"
)

func TestServicesCannotChange(t *testing.T) {
	of := func(change func(*config.Services)) *config.Config {
		s := &config.Services{LoadBalancerClass: "herald.dev/vip", Linger: time.Second}
		change(s)
		return &config.Config{Services: s}
	}
	same := of(func(*config.Services) {})
	for _, tt := range []struct {
		name     string
		old, new *config.Config
		want     string
	}{
		{name: "the same", old: same, new: of(func(*config.Services) {})},
		{name: "at the start", new: same},
		{name: "never there", old: &config.Config{}, new: &config.Config{}},
		{name: "added", old: &config.Config{}, new: same, want: "services"},
		{name: "removed", old: same, new: &config.Config{}, want: "services"},
		{name: "another cluster", old: same, new: of(func(s *config.Services) { s.Kubeconfig = "/etc/k" }), want: "services.kubeconfig"},
		{name: "no candidate", old: same, new: of(func(s *config.Services) { s.Assign = true }), want: "services.assign"},
		{name: "linger", old: same, new: of(func(s *config.Services) { s.Linger = 0 }), want: "services.linger"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			if err := unchangeable(tt.old, tt.new); err != nil {
				got = err.Error()
			}
			if tt.want != "" {
				tt.want += " cannot change while running: restart herald to apply it"
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
