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

// right is a capability, and what is missing without it.
type right struct {
	bit  int
	name string
	// severity is that of doing without, why what follows.
	severity Severity
	why      string
}

// rights are the capabilities that c needs.
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

// privileged says whether c opens a port that only root may.
func privileged(c *config.Config) bool {
	const first = 1024
	_, port, _ := net.SplitHostPort(c.Metrics.Listen) // perhaps of a host by its name, which facts.Ports leaves out
	n, _ := strconv.Atoi(port)
	return n > 0 && n < first || slices.ContainsFunc(facts.Ports(c), func(p facts.Port) bool { return p.Local.Port() < first })
}

// examineRights looks at the capabilities of Herald, or of the present process, which are
// Herald's if it is started in the same way.
func examineRights(c *config.Config, f *facts.Facts, out *findings) {
	var has []string
	for _, r := range rights(c) {
		if f.Capabilities&(1<<r.bit) != 0 {
			has = append(has, r.name)
		} else {
			out.add(r.severity, r.name, f.Holder+" does not have it", r.why,
				"run as root, or grant it: AmbientCapabilities="+r.name+" in the systemd unit")
		}
	}
	if len(has) > 0 {
		out.fine("capabilities", f.Holder+" has "+list(has))
	}
	const enough = 256 // sessions, checks, members and what reads files
	switch {
	case f.Descriptors == 0:
	case f.Descriptors < enough:
		out.warning("open files", fmt.Sprintf("at most %d", f.Descriptors),
			"A check that finds no descriptor free fails, and withdraws the VIP.", "ulimit -n 1024, or LimitNOFILE=1024 in the systemd unit")
	default:
		out.fine("open files", fmt.Sprintf("at most %d", f.Descriptors))
	}
}

// examineRealtime looks at whether the host lets anything run in real time.
func examineRealtime(c *config.Config, f *facts.Facts, out *findings) {
	const setting = "kernel/sched_rt_runtime_us"
	if c.Realtime && f.Settings[setting] == "0" {
		out.warning(dotted(setting), "0: nothing may run in real time",
			"realtime: true is without effect: a busy node delays checks and BFD.", "sysctl -w kernel.sched_rt_runtime_us=950000")
	}
}

// examineClock looks at what the kernel measures time with.
func examineClock(_ *config.Config, f *facts.Facts, out *findings) {
	const subject = "clock source"
	switch source := f.ClockSource; source {
	case "":
	case "jiffies", "refined-jiffies", "hpet", "acpi_pm", "pit":
		out.warning(subject, source,
			"It is slow or coarse, and the kernel falls back to it when it trusts nothing better: leases and BFD count on clocks that run at the same rate.",
			"dmesg | grep -i clocksource; let the hypervisor offer tsc or kvm-clock")
	default:
		out.fine(subject, source)
	}
}

// dotted is a path below /proc/sys as sysctl writes it, which takes slashes where a
// name has dots of its own, as that of a VLAN.
func dotted(setting string) string {
	if strings.Contains(setting, ".") {
		return setting
	}
	return strings.ReplaceAll(setting, "/", ".")
}
