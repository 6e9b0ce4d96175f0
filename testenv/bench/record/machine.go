package record

import (
	"cmp"
	"context"
	"debug/buildinfo"
	"fmt"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Here returns the settings of a run that begins now, on this machine, with the
// programs at these paths, by name. It omits missing programs.
func Here(ctx context.Context, programs map[string]string) []Setting {
	model, memory := machine()
	list := []Setting{
		{"began", time.Now().UTC().Format("2006-01-02T15:04:05Z")},
		{"machine", fmt.Sprintf("%d cores of %s, %.0f GiB", runtime.NumCPU(), model, memory)},
	}
	var uts unix.Utsname
	if unix.Uname(&uts) == nil {
		list = append(list, Setting{"kernel", unix.ByteSliceToString(uts.Release[:])})
	}
	for _, name := range []string{"herald", "frr", "bird", "exabgp", "keepalived", "haproxy", "kubernetes", "metallb"} {
		if path, ok := programs[name]; ok {
			if v := version(ctx, name, path); v != "" {
				list = append(list, Setting{name, v})
			}
		}
	}
	return list
}

// version asks a program for its version. Go programs, except Herald, report the
// version of their module.
func version(ctx context.Context, name, path string) string {
	if name == "kubernetes" || name == "metallb" {
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return ""
		}
		return strings.TrimPrefix(info.Main.Version, "v")
	}
	how := map[string]string{"herald": "version", "haproxy": "-v"}
	said, _ := exec.CommandContext(ctx, path, cmp.Or(how[name], "--version")).CombinedOutput()
	if name == "herald" {
		first, _, _ := strings.Cut(string(said), "\n")
		return strings.TrimPrefix(strings.TrimSpace(first), "herald ")
	}
	return number.FindString(string(said))
}

var number = regexp.MustCompile(`\d+\.\d+(\.\d+)?`)

// machine returns the name of the first processor, and the memory in GiB.
func machine() (model string, memory float64) {
	model = "an unknown CPU"
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return model, 0
	}
	if info, err := fs.CPUInfo(); err == nil && len(info) > 0 && info[0].ModelName != "" {
		model = info[0].ModelName
	}
	if m, err := fs.Meminfo(); err == nil && m.MemTotalBytes != nil {
		memory = float64(*m.MemTotalBytes) / (1 << 30)
	}
	return model, memory
}
