// Package manifests generates the manifests of Herald: a static pod, a DaemonSet or a systemd unit for a node, and
// Deployments for tenants. Each has exactly the capabilities and files that a configuration needs. `herald manifest`
// prints them. The files in this folder are its output for a configuration with all files in one folder.
//
// This package does not use the Kubernetes API. Herald needs the API only to announce VIPs of Services.
package manifests

//go:generate sh -c "go run ../cmd/herald manifest static-pod >static-pod.yaml"
//go:generate sh -c "go run ../cmd/herald manifest daemonset >kustomize/base/daemonset.yaml"
//go:generate sh -c "go run ../cmd/herald manifest daemonset --config kustomize/services/herald.yaml >kustomize/services/daemonset.yaml"
//go:generate sh -c "go run ../cmd/herald manifest daemonset --config kustomize/balancer/herald.yaml --node worker >kustomize/balancer/daemonset.yaml"
//go:generate sh -c "go run ../cmd/herald manifest systemd >herald.service"
//go:generate sh -c "go run ../cmd/herald manifest agent --cluster acme >tenants/agent.yaml"
//go:generate sh -c "go run ../cmd/herald manifest manager >tenants/manager.yaml"

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"regexp"
	"strings"
	"text/template"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/tenant"
)

// Kind is a way to run Herald on a node.
type Kind string

// The kinds.
const (
	// StaticPod is a pod that the kubelet runs from a file, with no API server.
	StaticPod Kind = "static-pod"
	// DaemonSet is a pod on each control-plane node. With a services section it is on every node; with
	// balancers only, on the other nodes. It comes from the API, so it cannot serve the API's VIP.
	DaemonSet Kind = "daemonset"
	// Systemd is a service unit.
	Systemd Kind = "systemd"
	// Agent is a Deployment in a tenant's cluster. Manager is one in the load-balancing cluster, with the
	// RBAC rules for both.
	Agent   Kind = "agent"
	Manager Kind = "manager"
)

// LoadBalancerSecret is the name of the Secret with an agent's kubeconfig for the load-balancing cluster.
const LoadBalancerSecret = "herald-load-balancer"

// Defaults of Options.
const (
	DefaultFile   = "/etc/herald/herald.yaml"
	DefaultImage  = "herald:dev"
	defaultBinary = "/usr/local/bin/herald"
)

// Options describe the Herald to run. The tags are for the flags of herald manifest.
type Options struct {
	// Config is the configuration to fit. Nil fits any configuration without realtime, with the default
	// addresses of metrics and socket, and with all files in the folder of File, except kubeadm's CA.
	Config *config.Config `kong:"-"`
	// File is the path of the configuration on the node; empty means DefaultFile. Its folder must be
	// Herald's own: a pod mounts all of it, so that it sees replaced files.
	File string `name:"path" placeholder:"FILE" help:"The path of the configuration on the node. Default: /etc/herald/herald.yaml."`
	// Image is the container image, with herald as its entrypoint; empty means DefaultImage.
	Image string `help:"The container image. Default: the image of make image for this version of herald."`
	// Cluster is the name of the tenant, for an agent.
	Cluster string `placeholder:"NAME" help:"The name of the tenant, for an agent."`
	// Domain is the parent of all tenants' names, for a manager. Without it no names are served.
	Domain string `placeholder:"DOMAIN" help:"The domain of tenants' Ingresses and Gateways, for a manager."`
	// Binary is the path of herald on the node, for systemd; empty means /usr/local/bin/herald.
	Binary string `placeholder:"FILE" help:"The path of herald on the node, for systemd. Default: /usr/local/bin/herald."`
}

//go:embed templates
var templates embed.FS

// Memory limits of a speaker, far above its use: at most 45 MiB at rest, 70 MB with 1,000 VIPs, and
// 250 MiB under a flood of routes.
const (
	memory     = 512 // MiB; the kernel kills it above
	softMemory = 384 // MiB; Go collects garbage harder above
)

// Make returns the manifest. The error names an option that a manifest cannot represent.
func Make(kind Kind, o Options) ([]byte, error) {
	o.File = cmp.Or(o.File, DefaultFile)
	o.Image = cmp.Or(o.Image, DefaultImage)
	o.Binary = cmp.Or(o.Binary, defaultBinary)
	if kind == Agent || kind == Manager {
		return makeDeployment(kind, o)
	}
	n, err := needsOf(kind, o)
	if err != nil {
		return nil, err
	}
	name, ok := map[Kind]string{StaticPod: "static-pod.yaml", DaemonSet: "daemonset.yaml", Systemd: "herald.service"}[kind]
	if !ok {
		return nil, fmt.Errorf("there is no manifest of kind %q, only %s, %s, %s, %s and %s", kind, StaticPod, DaemonSet, Systemd, Agent, Manager)
	}
	if kind == Systemd {
		if err := plain("the path of the binary", o.Binary, path); err != nil {
			return nil, err
		}
	} else if err := plain("the image", o.Image, image); err != nil {
		return nil, err
	}
	indent := func(by int, text string) string { // except the first line
		return strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n"+strings.Repeat(" ", by))
	}
	t, err := template.New("").Funcs(template.FuncMap{"indent": indent}).ParseFS(templates, "templates/*.tmpl")
	if err != nil {
		return nil, err
	}
	data := struct {
		Options
		needs
		Kind               Kind
		Memory, SoftMemory int
		Pod                string // its spec
	}{o, n, kind, memory, softMemory, ""}
	var out bytes.Buffer
	if err := t.ExecuteTemplate(&out, "pod", data); err != nil {
		return nil, err
	}
	data.Pod = out.String()
	out.Reset()
	err = t.ExecuteTemplate(&out, name+".tmpl", data)
	return out.Bytes(), err
}

// makeDeployment returns the manifest of an agent or a manager, which have no configuration file.
func makeDeployment(kind Kind, o Options) ([]byte, error) {
	if err := plain("the image", o.Image, image); err != nil {
		return nil, err
	}
	if kind == Agent && !tenant.ValidName(o.Cluster) {
		return nil, fmt.Errorf("the cluster is %q: want the name of its Tenant, as in --cluster acme", o.Cluster)
	}
	if o.Domain != "" && len(validation.IsDNS1123Subdomain(o.Domain)) > 0 {
		return nil, fmt.Errorf("the domain is %q: want a name such as lb.example.net", o.Domain)
	}
	t, err := template.ParseFS(templates, "templates/deployment.tmpl", "templates/"+string(kind)+".yaml.tmpl")
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = t.ExecuteTemplate(&out, string(kind)+".yaml.tmpl", struct {
		Options
		Kind   Kind
		Secret string
	}{o, kind, LoadBalancerSecret})
	return out.Bytes(), err
}

// Values that need no quotes, in YAML and in a unit.
var (
	path  = regexp.MustCompile(`^/[A-Za-z0-9._/@+-]*[A-Za-z0-9._@+-]$`)
	image = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@-]*[A-Za-z0-9]$`)
	host  = regexp.MustCompile(`^[A-Za-z0-9.:]+$`)
)

func plain(what, value string, as *regexp.Regexp) error {
	if as.MatchString(value) {
		return nil
	}
	if as == path {
		return fmt.Errorf("%s is %q: want an absolute path of letters, digits and . _ - / @ +", what, value)
	}
	return fmt.Errorf("%s is %q, which a manifest cannot name", what, value)
}
