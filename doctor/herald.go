package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/doctor/facts"
)

// examineHerald reports whether Herald runs here, and its file.
func examineHerald(_ *config.Config, f *facts.Facts, out *findings) {
	if f.Running == nil {
		p, there := f.Herald()
		switch subject := fmt.Sprintf("process %d", p.PID); {
		case errors.Is(f.RunningError, fs.ErrPermission):
			out.warning("admin socket", "only root may use it", "This report lacks the status of a running Herald.", "run herald doctor as root")
		case stuck(f):
			out.blocker("admin socket", "a Herald has it open and does not answer: it is frozen or starved",
				"It neither announces nor withdraws anything; its routes and addresses end by BFD, hold time or lease.",
				"systemctl restart herald; in a pod, kill -9 its process: pgrep -x herald")
		case there:
			out.blocker(subject, "runs, but does not answer on this file's admin socket",
				"Two Heralds on one node mistake each other's addresses for their own.",
				"stop it, or pass its file with --config")
		default:
			out.fine("this node", "Herald does not run yet")
		}
		return
	}
	s := f.Running
	subject := "version " + s.Version
	switch {
	case s.Config.Error != "":
		out.warning(subject, "runs, but the current file is not in force: "+s.Config.Error,
			"The last good configuration stays in force; the rest of this report examines the file.", "herald status; journalctl -u herald")
	case s.Config.File != f.File:
		out.warning(subject, "runs with "+s.Config.File,
			"This report examines a file that is not in force.", "herald doctor --config "+s.Config.File)
	case s.Draining != "":
		out.warning(subject, "is drained: "+s.Draining, "It announces nothing.", "herald undrain")
	default:
		out.fine(subject, fmt.Sprintf("runs with this file, generation %d", s.Config.Generation))
	}
}

// stuck reports whether a Herald accepts connections to its admin socket but does not answer in time.
func stuck(f *facts.Facts) bool {
	return f.Running == nil && errors.Is(f.RunningError, context.DeadlineExceeded)
}

// examineFiles examines the modes of files with secrets. Validation has already read them.
func examineFiles(c *config.Config, f *facts.Facts, out *findings) {
	valid := fmt.Sprintf("valid: %s, %s", count(len(c.VIPs), "VIP"), count(len(c.Checks), "check"))
	if len(c.Balancers) > 0 {
		valid += ", " + count(len(c.Balancers), "balancer")
	}
	out.fine("syntax", valid)
	for _, path := range facts.Secrets(c) {
		mode, known := f.Modes[path]
		switch {
		case !known:
		case mode.Perm()&0o077 != 0:
			out.warning(path, fmt.Sprintf("mode %04o: other users than its owner may read it", mode.Perm()),
				"Its readers can impersonate this node.", "chmod 600 "+path)
		default:
			out.fine(path, fmt.Sprintf("mode %04o", mode.Perm()))
		}
	}
	if c.Election != nil && c.Election.Insecure {
		out.warning("election.insecure", "votes are not encrypted",
			"Any host on the network can take over the VIPs.", "herald keygen /etc/herald/gossip.key, and set election.keyFile")
	}
}

// examineSoftware looks for other programs that announce addresses or speak BGP.
func examineSoftware(c *config.Config, f *facts.Facts, out *findings) {
	before := len(out.all)
	for _, p := range f.Programs {
		if name := p.Known(facts.Rivals()); name != "" {
			title := name
			if name == "speaker" {
				title = "MetalLB's speaker"
			}
			rival(fmt.Sprintf("%s, process %d", title, p.PID), "runs beside Herald", p.Mentions,
				"systemctl disable --now "+name+", or remove its pod", out)
		}
	}
	for _, m := range f.Manifests {
		rival(m.File, "is a static pod of "+m.Image, m.Mentions, "remove it from "+path.Dir(m.File), out)
	}
	examineRouters(c, f, out)
	if len(out.all) == before {
		out.fine("this node", "no other program that announces addresses")
	}
}

// rival reports another announcer of addresses: a blocker if its settings mention a VIP.
func rival(subject, seen string, mentions []netip.Addr, cure string, out *findings) {
	if len(mentions) > 0 {
		out.blocker(subject, seen+", for the VIP "+join(mentions),
			"Two programs that manage one address take it from each other, and two nodes answer for it.", cure)
	} else {
		out.warning(subject, seen, "No VIP of this file was found in its settings; check that it manages other addresses than Herald.", cure)
	}
}

// examineRouters looks for another BGP speaker on this node: a router has one session with each neighbour address.
func examineRouters(c *config.Config, f *facts.Facts, out *findings) {
	const bgp = 179
	runsHere := func(p v1alpha1.Peer) bool {
		_, own := f.Host.Has(p.Address)
		return own || p.Address == netip.IPv6Loopback()
	}
	if c.BGP == nil || slices.ContainsFunc(c.BGP.Peers, runsHere) {
		return
	}
	for _, s := range f.Sockets {
		if s.Network == "tcp" && s.Local.Port() == bgp && slices.Contains(facts.Routers(), s.Program) {
			out.warning(fmt.Sprintf("%s, process %d", s.Program, s.PID), "also speaks BGP from this node",
				"A router has one session with a neighbour: if this one has it, Herald has none.",
				"peer from another localAddress, or have Herald peer with it: peers: [{address: 127.0.0.1, …}]")
			return
		}
	}
}

func join(addrs []netip.Addr) string {
	names := make([]string, len(addrs))
	for i, addr := range addrs {
		names[i] = addr.String()
	}
	return list(names)
}

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
