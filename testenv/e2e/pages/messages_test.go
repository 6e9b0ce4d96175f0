package pages

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/herald-vip/herald/testenv/must"
)

// programTexts returns the string literals of the product, with "…" for verbs of fmt and for numbers.
func programTexts(t *testing.T) string {
	t.Helper()
	values := regexp.MustCompile(`%[-+#0-9.\[\]*]*[a-zA-Z]|[0-9]+`)
	var out strings.Builder
	sources(t, false, func(folder string, source []byte) {
		if strings.HasPrefix(folder, "testenv") || strings.HasPrefix(folder, ".") {
			return
		}
		file := must.Get[*ast.File](t)(parser.ParseFile(token.NewFileSet(), folder, source, parser.SkipObjectResolution))
		ast.Inspect(file, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				out.WriteString(values.ReplaceAllString(must.Get[string](t)(strconv.Unquote(literal.Value)), "…") + "\n")
			}
			return true
		})
	})
	return out.String()
}

// noMessages lists quotes with spaces that are no messages of Herald, with the reason.
var noMessages = map[string]string{
	"address already in use":          "error text of the kernel",
	"cannot assign requested address": "error text of the kernel",
	"operation not permitted":         "error text of the kernel",
	"500: [-]etcd failed":             "answer of an apiserver",
	"control-plane 10.99.0.10":        "name and address of a VIP",
	"no zebra nexthop kernel enable":  "setting of FRR",
	"bgp ebgp-requires-policy":        "setting of FRR",
	"vip not":                         "speaker composes it",
	"vip cannot be announced here":    "speaker composes it",
	"announced to 0 of 2 peers":       "status/admin composes it",
}

var (
	// commandLine matches quotes of commands.
	commandLine = regexp.MustCompile(`^(arping|curl|herald|ip|kubeadm|kubectl|sysctl|systemctl|vtysh) `)
	// configLine matches quotes of the configuration file: a field and its value.
	configLine = regexp.MustCompile(`^[a-z][\w.]*: [\w{\[]\S*$`)
)

// TestQuotedMessages checks that Herald's code has each log message, status text and finding that docs/runbook.md and
// docs/troubleshooting.md quote. A quote has "…" in place of values. Quotes without a space are names, which other
// tests check.
func TestQuotedMessages(t *testing.T) {
	program, used, checked := programTexts(t), make(map[string]bool), 0
	numbers := regexp.MustCompile(`[0-9]+`)
	known := func(words string) bool {
		words = strings.Trim(numbers.ReplaceAllString(words, "…"), " …:")
		return strings.Contains(program, words)
	}
	for _, page := range []string{"docs/runbook.md", "docs/troubleshooting.md"} {
		text := regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(string(read(t, page)), "")
		for _, quote := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(text, -1) {
			quote := strings.Join(strings.Fields(quote[1]), " ")
			if commandLine.MatchString(quote) || configLine.MatchString(quote) {
				continue
			}
			for words := range strings.SplitSeq(quote, "…") {
				words = strings.TrimSpace(words)
				if noMessages[words] != "" {
					used[words] = true
					continue
				}
				if !strings.Contains(words, " ") {
					continue
				}
				checked++
				// A title or a name is put before a text with a colon.
				title, rest, split := strings.Cut(words, ": ")
				if !known(words) && !(split && known(title) && known(rest)) {
					t.Errorf("%s quotes %q, but no text of the program has %q", page, quote, words)
				}
			}
		}
	}
	for words := range noMessages {
		if !used[words] {
			t.Errorf("the exception %q is unused: remove it", words)
		}
	}
	if checked < 80 {
		t.Errorf("only %d texts were checked", checked)
	}
}
