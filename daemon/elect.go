package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/netutil/fence"
	"github.com/herald-vip/herald/speaker"
	"github.com/herald-vip/herald/speaker/flat"
	"github.com/herald-vip/herald/status/admin"
)

// newFence creates the fence that c asks for, or returns why there is none.
func newFence(log *slog.Logger, c *config.Config) (f *fence.Fence, unfenced string, err error) {
	if c.Election == nil || c.ARP.Fence == config.FenceOff {
		unfenced = "no VIP needs one"
		if c.Election != nil {
			unfenced = "arp.fence is off"
			log.Warn("no fence, as configured: if herald is frozen two nodes may answer for a VIP")
		}
		if err := fence.Clear(); err != nil {
			log.Debug("a predecessor's fence may be left", "err", err)
		}
		return nil, unfenced, nil
	}
	f, err = fence.New(log, fence.Options{Services: c.Services != nil, HostPorts: c.Services != nil && c.Services.HostPorts})
	switch {
	case err == nil:
		return f, admin.FenceOn, nil
	case c.ARP.Fence == config.FenceRequired || !errors.Is(err, fence.ErrUnsupported):
		return nil, "", fmt.Errorf("arp.fence: %w", err)
	}
	log.Warn("no fence: if herald is frozen two nodes may answer for a VIP", "err", err)
	return nil, err.Error(), nil
}

// flatConfig returns the settings in c of VIPs on a flat layer 2.
func flatConfig(c *config.Config, vips []speaker.VIP) flat.Config {
	out := flat.Config{VIPs: vips, Yield: make(map[string]bool)}
	for _, v := range c.VIPs {
		out.Yield[v.Name] = v.OnConflict == config.Yield
	}
	if c.Election != nil {
		out.Members = slices.Sorted(maps.Keys(c.Election.Members))
		out.Lifetime = flat.Lifetime(c.Election.Lease)
	}
	if c.Services != nil {
		out.Linger = c.Services.Linger
	}
	return out
}

// elect puts the election of c in force.
func (d *Daemon) elect(c *config.Config) error {
	if c.Election == nil {
		return nil
	}
	e := &election.Config{
		Settings: *c.Election, Self: c.NodeName, Observer: !c.Flat(),
		Remember: memory(c), State: filepath.Join(stateDir(), "electorate"),
	}
	if err := d.flat.Election().Apply(e); err != nil {
		return err
	}
	known := d.config != nil && d.config.Election.KeyFile == c.Election.KeyFile
	if problem := election.Exposed(c.Election.KeyFile); problem != "" && !known {
		d.log.Warn("THE KEY OF THE ELECTION IS EXPOSED: " + problem)
	}
	return nil
}

// memory returns the path of the file, beside the socket, that stores the members' addresses on a node without a vote.
func memory(c *config.Config) string {
	return strings.TrimSuffix(c.Admin.Socket, ".sock") + ".members"
}
