package facts

import (
	"io"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/herald-vip/herald/config"
)

// maxFile limits the bytes that are read of any file.
const maxFile = 1 << 20

// read returns the first maxFile bytes of a regular file; empty if it cannot be read. It does not open
// other kinds: reading a pipe could block for ever.
func read(root fs.FS, name string) string {
	if info, err := fs.Stat(root, name); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	file, err := root.Open(name)
	if err != nil {
		return ""
	}
	defer file.Close()
	data, _ := io.ReadAll(io.LimitReader(file, maxFile)) // keep the bytes before an error
	return string(data)
}

// lookAtKernel reads kernel settings and the clock source.
func (f *Facts) lookAtKernel(root fs.FS) {
	f.ClockSource = strings.TrimSpace(read(root, "sys/devices/system/clocksource/clocksource0/current_clocksource"))
	f.Settings = make(map[string]string)
	for _, name := range settings(slices.Collect(maps.Keys(f.Host.Links))) {
		if value := strings.TrimSpace(read(root, "proc/sys/"+name)); value != "" {
			f.Settings[name] = value
		}
	}
}

// lookAtSoftware finds programs, static pods, and the owners of the ports that matter.
func (f *Facts) lookAtSoftware(root fs.FS, c *config.Config) {
	f.Programs = programs(root, c, os.Getpid())
	f.Manifests = manifests(root, c)
	const bgp = 179
	wanted := []uint16{bgp}
	for _, p := range Ports(c) {
		wanted = append(wanted, p.Local.Port())
	}
	for _, b := range c.Balancers {
		for _, p := range c.Places(b) {
			wanted = append(wanted, p.Port())
		}
	}
	for _, table := range []string{"tcp", "tcp6", "udp", "udp6"} {
		for _, s := range parseSockets(strings.TrimSuffix(table, "6"), read(root, "proc/thread-self/net/"+table)) {
			if slices.Contains(wanted, s.Local.Port()) {
				f.Sockets = append(f.Sockets, s)
			}
		}
	}
	f.findOwners(root)
}

// programs returns the programs in this network namespace that announce addresses or routes, each once
// even if it has several processes.
func programs(root fs.FS, c *config.Config, self int) []Program {
	names := append(append(Rivals(), Routers()...), "herald")
	home, _ := fs.ReadLink(root, "proc/self/ns/net")
	var out []Program
	for _, pid := range pids(root) {
		dir := "proc/" + strconv.Itoa(pid)
		p := Program{PID: pid, Name: strings.TrimSpace(read(root, dir+"/comm"))}
		command := read(root, dir+"/cmdline")
		p.Args = strings.Split(strings.Trim(command, "\x00"), "\x00")
		name := p.Known(names)
		if pid == self || name == "" {
			continue
		}
		if there, err := fs.ReadLink(root, dir+"/ns/net"); err == nil && there != home {
			continue
		}
		about := command + "\x00" + read(root, dir+"/environ")
		if name == "speaker" && !strings.Contains(strings.ToLower(about), "metallb") { // a common word
			continue
		}
		if name == "keepalived" {
			about += read(root, dir+"/root"+keepalivedFile(p.Args))
		}
		p.Name, p.Mentions = name, mentions(c, about)
		if !slices.ContainsFunc(out, func(o Program) bool { return o.Name == p.Name && slices.Equal(o.Args, p.Args) }) {
			out = append(out, p)
		}
	}
	return out
}

// keepalivedFile returns the path of keepalived's configuration from its arguments.
func keepalivedFile(args []string) string {
	for i, arg := range args {
		if file, ok := strings.CutPrefix(arg, "--use-file="); ok {
			return path.Clean("/" + file)
		}
		if (arg == "-f" || arg == "--use-file") && i+1 < len(args) {
			return path.Clean("/" + args[i+1])
		}
	}
	return "/etc/keepalived/keepalived.conf"
}

// pids returns the IDs of all visible processes, sorted.
func pids(root fs.FS) []int {
	entries, _ := fs.ReadDir(root, "proc")
	var out []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			out = append(out, pid)
		}
	}
	slices.Sort(out)
	return out
}

// manifests returns the static pods of rivals.
func manifests(root fs.FS, c *config.Config) []Manifest {
	const dir = "etc/kubernetes/manifests"
	entries, _ := fs.ReadDir(root, dir)
	var out []Manifest
	for _, e := range entries {
		if !slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(e.Name())) {
			continue
		}
		text := read(root, path.Join(dir, e.Name()))
		if found := image(text); found != "" {
			out = append(out, Manifest{File: "/" + path.Join(dir, e.Name()), Image: found, Mentions: mentions(c, text)})
		}
	}
	return out
}

// findOwners sets the owners of the sockets, if the open files of their processes are visible.
func (f *Facts) findOwners(root fs.FS) {
	if len(f.Sockets) == 0 {
		return // the search is slow
	}
	wanted := make(map[string]*Socket)
	for i := range f.Sockets {
		wanted["socket:["+f.Sockets[i].inode+"]"] = &f.Sockets[i]
	}
	for _, pid := range pids(root) {
		dir := "proc/" + strconv.Itoa(pid)
		entries, _ := fs.ReadDir(root, dir+"/fd")
		for _, e := range entries {
			target, _ := fs.ReadLink(root, dir+"/fd/"+e.Name())
			if s := wanted[target]; s != nil && s.PID == 0 {
				s.PID, s.Program = pid, strings.TrimSpace(read(root, dir+"/comm"))
			}
		}
	}
}

// settings returns the kernel settings that matter, as paths below /proc/sys.
func settings(links []string) []string {
	out := []string{
		"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding", "net/netfilter/nf_conntrack_count", "net/netfilter/nf_conntrack_max", "net/ipv6/ip_nonlocal_bind",
		"kernel/sched_rt_runtime_us", "net/ipv4/neigh/default/gc_thresh3", "net/ipv6/neigh/default/gc_thresh3",
	}
	for _, link := range append([]string{"all"}, links...) {
		for _, name := range []string{"rp_filter", "arp_ignore"} {
			out = append(out, "net/ipv4/conf/"+link+"/"+name)
		}
		out = append(out, "net/ipv6/conf/"+link+"/disable_ipv6")
	}
	return out
}

// Rivals returns the program and image names of other announcers of addresses.
func Rivals() []string {
	return []string{"kube-vip", "keepalived", "ucarp", "vrrpd", "speaker", "metallb"}
}

// Routers returns the names of programs that speak BGP or BFD.
func Routers() []string {
	return []string{"bird", "bird6", "bgpd", "bfdd", "gobgpd", "exabgp"}
}

// Known returns the one of names that is the name or the first argument of p; empty if none.
func (p Program) Known(names []string) string {
	if slices.Contains(names, p.Name) {
		return p.Name
	}
	if len(p.Args) > 0 && slices.Contains(names, path.Base(p.Args[0])) {
		return path.Base(p.Args[0])
	}
	return ""
}

// mentions returns the VIPs that a text names.
func mentions(c *config.Config, text string) []netip.Addr {
	words := map[netip.Addr]bool{}
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'f') && (r < 'A' || r > 'F') && r != '.' && r != ':'
	}) {
		word = strings.Trim(word, ".")
		if at, err := netip.ParseAddrPort(word); err == nil {
			words[at.Addr()] = true
		}
		if addr, err := netip.ParseAddr(word); err == nil {
			words[addr] = true
		}
	}
	var out []netip.Addr
	for _, v := range c.VIPs {
		for _, addr := range v.Addresses {
			if words[addr] {
				out = append(out, addr)
			}
		}
	}
	return out
}

// image returns the first image of a rival in a manifest; empty if there is none.
func image(manifest string) string {
	for line := range strings.Lines(manifest) {
		key, value, _ := strings.Cut(line, ":")
		words := strings.FieldsFunc(value, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune("\"',", r) })
		if strings.Trim(key, " \t-\"") != "image" || len(words) == 0 {
			continue
		}
		for _, name := range Rivals() {
			if name != "speaker" && strings.Contains(words[0], name) {
				return words[0]
			}
		}
	}
	return ""
}
