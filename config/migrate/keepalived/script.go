package keepalived

import (
	"net"
	"net/url"
	"path"
	"regexp"
	"strings"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/config/migrate"
)

var (
	// deviceTCP is bash's way to connect: </dev/tcp/127.0.0.1/6443.
	deviceTCP = regexp.MustCompile(`^<\s*/dev/tcp/([^/\s]+)/([0-9]+)$`)
	// shellWords is what makes a command more than one program with its arguments.
	shellWords = regexp.MustCompile("[|&;<>`$()]")
	// silenced is output that goes nowhere.
	silenced = regexp.MustCompile(`\s+(?:[12]?>+\s*/dev/null|2>&1|&>\s*/dev/null)`)
)

// script is what a vrrp_script asks, in Herald's terms.
type script struct {
	check   config.Check
	remarks map[string]string // by field of the check
	doubt   string            // what has to be compared with the script, if it could not be read
	file    string            // its file then, without arguments, which may hold a password
}

// readScript recognises a command; ok is false if it is none that Herald's checks can do.
func readScript(command string) (s script, ok bool) {
	command = strings.TrimSpace(command)
	for _, suffix := range []string{"|| exit 1", "|| exit 2", "|| false"} {
		command = strings.TrimSpace(strings.TrimSuffix(command, suffix))
	}
	if words, _ := splitWords(command); len(words) == 3 && isShell(words[0].text) && words[1].text == "-c" {
		command = words[2].text
	}
	if m := deviceTCP.FindStringSubmatch(command); m != nil {
		return tcpScript(m[1], m[2]), true
	}
	command = silenced.ReplaceAllString(command, "")
	if shellWords.MatchString(command) {
		return script{}, false
	}
	var args []string
	words, _ := splitWords(command)
	for _, w := range words {
		args = append(args, w.text)
	}
	if len(args) == 0 {
		return script{}, false
	}
	switch path.Base(args[0]) {
	case "curl":
		return curlScript(args[1:])
	case "nc", "ncat", "netcat":
		return ncScript(args[1:])
	}
	file := args[0]
	if isShell(file) && len(args) > 1 {
		file = args[1]
	}
	return apiserverScript(file), isApiserverScript(file)
}

// apiserverScript takes a script by its name for one that asks the apiserver.
func apiserverScript(file string) script {
	return script{
		check:   migrate.DefaultCheck("6443"),
		remarks: map[string]string{"http.caFile": migrate.KubeadmPaths},
		doubt:   "the script was not read; by its name it asks the apiserver, and so does the check at https://127.0.0.1:6443: compare the two",
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

// isApiserverScript goes by the name, check_apiserver.sh in kubeadm's documentation.
func isApiserverScript(s string) bool {
	base := strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(path.Base(s)))
	return strings.Contains(base, "apiserver") || strings.Contains(base, "kubeapi")
}

func tcpScript(host, port string) script {
	return script{check: config.Check{TCP: &config.TCPCheck{Address: net.JoinHostPort(strings.Trim(host, "[]"), port)}}}
}

// ncScript is nc -z HOST PORT, with or without a timeout.
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

// curlScript is a GET of one URL.
func curlScript(args []string) (script, bool) {
	h := &config.HTTPCheck{}
	s := script{check: config.Check{HTTP: h}, remarks: map[string]string{}}
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
		s.remarks["http.insecureSkipVerify"] = "As it was. Safer: caFile and serverName instead."
	}
	if !fails {
		s.remarks["http.url"] = "curl without -f took every status for an answer: Herald wants 200, or what status lists."
	}
	return s, h.URL != ""
}
