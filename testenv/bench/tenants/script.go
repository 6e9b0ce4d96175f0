package tenants

import (
	"bytes"
	"context"
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"text/template"

	"github.com/herald-vip/herald/testenv/step"
)

// script is an example of a script written in an afternoon.
//
//go:embed script.sh.tmpl
var script string

// scriptNet are the first three numbers of the addresses that the script gives.
const scriptNet = "10.99.1"

// startScript makes the script serve the tenant from the first node of the
// load-balancing cluster. The router has a route to it.
func (s *stage) startScript(ctx context.Context) {
	const work = "/root/admin" // the administrators' folder, here on the first node
	step.Do(os.CopyFS(filepath.Join(s.dir, "admin", s.acme.Name), os.DirFS(filepath.Join(s.dir, s.acme.Name))))
	var text bytes.Buffer
	t := template.Must(template.New("script").Parse(script))
	step.Do(t.Execute(&text, map[string]string{"Kubeconfig": filepath.Join(work, s.acme.Name, "kubeconfig"), "Dir": work, "HAProxy": s.Programs["haproxy"], "Net": scriptNet}))
	node := s.Balancing.Nodes()[0]
	step.Get(s.Node("r1").Run(ctx, "ip", "route", "add", scriptNet+".0/24", "via", s.Balancing.Address(node).String()))
	log := step.Get(os.Create(filepath.Join(s.dir, "logs", "script.log")))
	defer log.Close()
	step.Get(s.Node(node).Start(&exec.Cmd{Args: []string{"sh", "-c", text.String()}, Stdout: log, Stderr: log}))
}
