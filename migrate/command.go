package migrate

import (
	"math"
	"net"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/herald-vip/herald/health"
)

// Setting is a setting of another program. Line is 0 if it is not set and Value is its default.
type Setting struct {
	Line        int
	Name, Value string
}

// AddCommand adds a check in place of a command, under a unique name: a TCP or HTTP check for nc and curl,
// otherwise an exec check. If it cannot, it notes the reason and returns nil.
func (d *Draft) AddCommand(name, command string, line int, subject string) *health.Check {
	found, problem := readCommand(command)
	if problem != "" {
		program, _, _ := strings.Cut(strings.TrimSpace(command), " ") // its arguments may hold a password
		d.ToDo(line, subject, "%s %s", Quoted(program), problem)
		return nil
	}
	found.check.Name = DNSName(name, "check")
	path, _ := d.AddCheck(found.check, line)
	for field, remark := range found.remarks {
		d.Comment(path.Field(field), remark)
	}
	switch {
	case found.doubt != "":
		d.Comment(path, "Compare with the script "+Shown(found.file)+", which was not read.")
		d.ToDo(line, subject, "%s", found.doubt)
	case found.check.Exec != nil:
		d.Note(line, subject, "runs in a sandbox: as nobody unless exec.user is set, without privileges and environment; herald doctor tries it")
	}
	return &d.Checks[len(d.Checks)-1]
}

// SetPace sets interval, timeout (seconds), rise and fall (probes) of an exec check. For other kinds it
// notes that Herald's defaults apply.
func (d *Draft) SetPace(c *health.Check, interval, timeout, rise, fall Setting) {
	if c.Exec != nil {
		c.Interval, c.Timeout = d.Seconds(interval), d.Seconds(timeout)
		c.Rise, c.Fall = int(d.Number(rise, 1, math.MaxInt32, 0)), int(d.Number(fall, 1, math.MaxInt32, 0))
		return
	}
	for _, s := range []Setting{interval, timeout, rise, fall} {
		if s.Line > 0 {
			d.Note(s.Line, s.Name, "Herald checks every 200ms and waits 300ms; two failures, or one refused connection, make it unhealthy: to keep the pace, set interval, timeout, rise and fall in checks")
		}
	}
}

// Seconds parses a setting in seconds. It notes an invalid one and returns 0.
func (d *Draft) Seconds(s Setting) time.Duration {
	n, err := strconv.ParseFloat(s.Value, 64)
	if err != nil || !(n >= 0.001 && n < 1e6) {
		d.ToDo(s.Line, s.Name, "%s is not a positive number of seconds: Herald's default applies", Quoted(s.Value))
		return 0
	}
	return time.Duration(n * float64(time.Second)).Round(time.Millisecond)
}

// Number parses a setting from least to most. It returns otherwise if the setting is unset or invalid, and
// notes an invalid one.
func (l *Notes) Number(s Setting, least, most, otherwise uint32) uint32 {
	n, err := strconv.ParseUint(s.Value, 10, 32)
	switch {
	case s == Setting{Name: s.Name}:
		return otherwise
	case err != nil || uint32(n) < least || uint32(n) > most:
		l.ToDo(s.Line, s.Name, "%s is not a number from %d to %d: not carried over", Quoted(s.Value), least, most)
		return otherwise
	}
	return uint32(n)
}

var (
	// deviceTCP matches bash's TCP connections: </dev/tcp/127.0.0.1/6443.
	deviceTCP = regexp.MustCompile(`^<\s*/dev/tcp/([^/\s]+)/([0-9]+)$`)
	// shellWords matches characters that need a shell, except within singleQuoted.
	shellWords   = regexp.MustCompile("[|&;<>`$()*~#\n]")
	singleQuoted = regexp.MustCompile(`'[^']*'`)
	// silenced matches redirections to /dev/null.
	silenced = regexp.MustCompile(`\s+(?:[12]?>+\s*/dev/null|2>&1|&>\s*/dev/null)`)
)

// script is the check that a command stands for.
type script struct {
	check   health.Check
	remarks map[string]string // by field of the check
	doubt   string            // to do: how to compare the check with the script that was not read
	file    string            // that script, without arguments: they may hold a password
}

// readCommand converts a command. A non-empty problem says why Herald's checks cannot replace it.
func readCommand(command string) (s script, problem string) {
	command = strings.TrimSpace(command)
	for _, suffix := range []string{"|| exit 1", "|| exit 2", "|| false"} {
		command = strings.TrimSpace(strings.TrimSuffix(command, suffix))
	}
	if args, _ := words(command); len(args) == 3 && isShell(args[0]) && args[1] == "-c" {
		command = args[2]
	}
	if m := deviceTCP.FindStringSubmatch(command); m != nil {
		return tcpScript(m[1], m[2]), ""
	}
	args, plain := words(silenced.ReplaceAllString(command, ""))
	if !plain || len(args) == 0 {
		return script{}, "begins a line for a shell, and Herald runs no shell: put the line into a script that begins with #!/bin/sh, and write an exec check with its path"
	}
	ok := false
	switch path.Base(args[0]) {
	case "curl":
		s, ok = curlScript(args[1:])
	case "nc", "ncat", "netcat":
		s, ok = ncScript(args[1:])
	default:
		file := args[0]
		if isShell(file) && len(args) > 1 {
			file = args[1]
		}
		base := strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(path.Base(file))) // check_apiserver.sh in kubeadm's documentation
		s, ok = apiserverScript(file), strings.Contains(base, "apiserver") || strings.Contains(base, "kubeapi")
	}
	switch {
	case ok:
		return s, ""
	case !path.IsAbs(args[0]):
		return script{}, "is not an absolute path, and not a known form of curl or nc: write an exec check with the program's path, or another check in its place"
	}
	return script{check: health.Check{Exec: &health.Exec{Command: args}}}, ""
}

// words splits a command as a shell does. plain reports that a shell would only start one program with
// these arguments.
func words(command string) (list []string, plain bool) {
	parts, closed := split(command, "", "")
	for _, w := range parts {
		list = append(list, w.text)
	}
	return list, closed && !shellWords.MatchString(singleQuoted.ReplaceAllString(command, ""))
}

// apiserverScript returns the default check of the apiserver in place of an unread script.
func apiserverScript(file string) script {
	return script{
		check:   DefaultCheck("6443"),
		remarks: map[string]string{"http.caFile": KubeadmPaths},
		doubt:   "the script was not read; its name suggests that it asks the apiserver, as the check does at https://127.0.0.1:6443: compare the two",
		file:    file,
	}
}

func isShell(s string) bool {
	switch path.Base(s) {
	case "sh", "bash", "dash":
		return true
	}
	return false
}

func tcpScript(host, port string) script {
	return script{check: health.Check{TCP: &health.TCP{Address: net.JoinHostPort(strings.Trim(host, "[]"), port)}}}
}

// ncScript converts nc -z HOST PORT, with or without a timeout.
func ncScript(args []string) (script, bool) {
	var rest []string
	connects := false
	for i := 0; i < len(args); i++ {
		switch a := args[i]; {
		case a == "-w" || a == "-G" || a == "-i":
			i++
		case strings.HasPrefix(a, "-") && strings.Trim(a, "-zvnNtw4610235789") == "":
			connects = connects || strings.Contains(a, "z")
		case strings.HasPrefix(a, "-"):
			return script{}, false
		default:
			rest = append(rest, a)
		}
	}
	if len(rest) != 2 || !connects {
		return script{}, false
	}
	return tcpScript(rest[0], rest[1]), true
}

// curlScript converts a GET of one URL.
func curlScript(args []string) (script, bool) {
	h := &health.HTTP{}
	s := script{check: health.Check{HTTP: h}, remarks: map[string]string{}}
	fails := false
	for i := 0; i < len(args); i++ {
		a := args[i]
		next := func() string {
			if i++; i < len(args) {
				return args[i]
			}
			return ""
		}
		switch {
		case a == "--max-time" || a == "-m" || a == "--connect-timeout" || a == "-o" || a == "--output" || a == "-w" || a == "--write-out":
			next()
		case a == "--cacert":
			h.CAFile = next()
		case a == "--cert" || a == "-E":
			h.ClientCertFile = next()
		case a == "--key":
			h.ClientKeyFile = next()
		case a == "--silent" || a == "--show-error" || a == "--ipv4" || a == "--ipv6" || a == "--compressed":
		case a == "--fail" || a == "--fail-with-body":
			fails = true
		case a == "--insecure":
			h.InsecureSkipVerify = true
		case strings.HasPrefix(a, "--"):
			return script{}, false
		case strings.HasPrefix(a, "-"):
			flags := a[1:]
			if last := len(flags) - 1; last > 0 && (flags[last] == 'o' || flags[last] == 'm' || flags[last] == 'w') {
				next()
				flags = flags[:last]
			}
			if strings.Trim(flags, "sSfk46Nv") != "" {
				return script{}, false
			}
			fails = fails || strings.Contains(flags, "f")
			h.InsecureSkipVerify = h.InsecureSkipVerify || strings.Contains(flags, "k")
		case h.URL == "":
			h.URL = a
		default:
			return script{}, false
		}
	}
	if !strings.Contains(h.URL, "://") {
		h.URL = "http://" + h.URL
	}
	u, err := url.Parse(h.URL)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https" {
		return script{}, false
	}
	if u.Scheme == "http" {
		h.InsecureSkipVerify, h.CAFile, h.ClientCertFile, h.ClientKeyFile = false, "", "", ""
	}
	if h.InsecureSkipVerify {
		h.CAFile = ""
		s.remarks["http.insecureSkipVerify"] = "As before. Safer: caFile and serverName instead."
	}
	if !fails {
		s.remarks["http.url"] = "curl without -f accepted every status: Herald expects 200, or the list in status."
	}
	return s, h.URL != ""
}
