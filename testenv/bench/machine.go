package bench

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine is what a run was made on.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Memory uint64 `json:"memoryBytes"`
	Kernel string `json:"kernel"`
}

// thisMachine describes this machine, as far as it tells.
func thisMachine() Machine {
	m := Machine{Cores: runtime.NumCPU()}
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		m.CPU = cpuModel(string(info))
	}
	var sys unix.Sysinfo_t
	if unix.Sysinfo(&sys) == nil {
		m.Memory = sys.Totalram * uint64(sys.Unit)
	}
	var uts unix.Utsname
	if unix.Uname(&uts) == nil {
		m.Kernel = unix.ByteSliceToString(uts.Release[:])
	}
	return m
}

// cpuModel is the first model name in /proc/cpuinfo.
func cpuModel(info string) string {
	for line := range strings.Lines(info) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// versions asks the programs that are measured for theirs. Those that are not
// installed are left out.
func versions(ctx context.Context, heraldBinary string) map[string]string {
	number := regexp.MustCompile(`\d+\.\d+(\.\d+)?`)
	out := make(map[string]string)
	for name, argv := range map[string][]string{
		"FRR":        {"/usr/lib/frr/bgpd", "--version"},
		"BIRD":       {"/usr/sbin/bird", "--version"},
		"keepalived": {"/usr/sbin/keepalived", "--version"},
	} {
		said, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
		if err == nil {
			out[name] = string(number.Find(said))
		}
	}
	if said, err := exec.CommandContext(ctx, heraldBinary, "version").Output(); err == nil {
		said, _, _ = bytes.Cut(said, []byte("\n"))
		out["Herald"] = strings.TrimPrefix(string(bytes.TrimSpace(said)), "herald ")
	}
	return out
}
