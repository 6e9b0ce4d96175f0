package doctor

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/doctor/facts"
)

// right is a capability and the consequence of its absence.
type right struct {
	bit  int
	name string
	// severity and why describe its absence.
	severity Severity
	why      string
}

// rights returns the capabilities that c needs.
func rights(c *config.Config) []right {
	out := []right{{unix.CAP_NET_ADMIN, "CAP_NET_ADMIN", Blocker, "Herald cannot put a VIP on a link."}}
	if len(c.VIPs) == 0 && len(c.Balancers) > 0 {
		out[0].why = "Herald cannot balance in the kernel."
	}
	if c.Flat() || c.Services != nil {
		out = append(out, right{unix.CAP_NET_RAW, "CAP_NET_RAW", Blocker, "Herald cannot announce a VIP by ARP or neighbour discovery."})
	}
	if privileged(c) {
		out = append(out, right{unix.CAP_NET_BIND_SERVICE, "CAP_NET_BIND_SERVICE", Blocker, "Herald cannot open a port below 1024, as the file asks."})
	}
	if c.Realtime {
		out = append(out,
			right{unix.CAP_SYS_NICE, "CAP_SYS_NICE", Warning, "No real-time scheduling: a busy node delays checks and BFD."},
			right{unix.CAP_IPC_LOCK, "CAP_IPC_LOCK", Warning, "Memory is not locked: paging delays checks and BFD."})
	}
	return out
}

// privileged reports whether c opens a port below 1024.
func privileged(c *config.Config) bool {
	const first = 1024
	_, port, _ := net.SplitHostPort(c.Metrics.Listen) // may have a host name, which facts.Ports ignores
	n, _ := strconv.Atoi(port)
	return n > 0 && n < first || slices.ContainsFunc(facts.Ports(c), func(p facts.Port) bool { return p.Local.Port() < first })
}

// examineRights examines the capabilities of the running Herald, or of this process, and the limit of open files.
func examineRights(c *config.Config, f *facts.Facts, out *findings) {
	var present []string
	for _, r := range rights(c) {
		if f.Capabilities&(1<<r.bit) != 0 {
			present = append(present, r.name)
		} else {
			out.add(r.severity, r.name, f.Holder+" does not have it", r.why,
				"run as root, or grant it: AmbientCapabilities="+r.name+" in the systemd unit")
		}
	}
	if len(present) > 0 {
		out.fine("capabilities", f.Holder+" has "+list(present))
	}
	const enough = 256 // for sessions, checks, members and files
	switch {
	case f.Descriptors == 0:
	case f.Descriptors < enough:
		out.warning("open files", fmt.Sprintf("at most %d", f.Descriptors),
			"A check without a free descriptor fails, and the VIP is withdrawn.", "ulimit -n 1024, or LimitNOFILE=1024 in the systemd unit")
	default:
		out.fine("open files", fmt.Sprintf("at most %d", f.Descriptors))
	}
}

// examineRealtime examines whether the host allows real-time scheduling.
func examineRealtime(c *config.Config, f *facts.Facts, out *findings) {
	const setting = "kernel/sched_rt_runtime_us"
	if c.Realtime && f.Settings[setting] == "0" {
		out.warning(dotted(setting), "0: real-time scheduling is off",
			"realtime: true has no effect: a busy node delays checks and BFD.", "sysctl -w kernel.sched_rt_runtime_us=950000")
	}
}

// examineClock examines the clock source of the kernel.
func examineClock(_ *config.Config, f *facts.Facts, out *findings) {
	const subject = "clock source"
	switch source := f.ClockSource; source {
	case "":
	case "jiffies", "refined-jiffies", "hpet", "acpi_pm", "pit":
		out.warning(subject, source,
			"It is slow or coarse, and the kernel chooses it only if it trusts no better one: leases and BFD need clocks that run at the same rate.",
			"dmesg | grep -i clocksource; let the hypervisor offer tsc or kvm-clock")
	default:
		out.fine(subject, source)
	}
}

// dotted converts a path below /proc/sys to the dotted form of sysctl. A path with dots of its own, such
// as that of a VLAN link, keeps its slashes.
func dotted(setting string) string {
	if strings.Contains(setting, ".") {
		return setting
	}
	return strings.ReplaceAll(setting, "/", ".")
}
