package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/daemon"
	"github.com/herald-vip/herald/manifests"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/kube"
	"github.com/herald-vip/herald/tenant"
	"github.com/herald-vip/herald/tenant/agent"
	"github.com/herald-vip/herald/tenant/manager"
)

// clusterFlags are the flags of commands that run in a cluster, as a Deployment.
type clusterFlags struct {
	Kubeconfig string `placeholder:"FILE" help:"The kubeconfig of the cluster. Default: the pod's service account."`
	Namespace  string `placeholder:"NAME" help:"The namespace of the Lease, and of an agent's Secret. Default: the pod's."`
	PodName    string `env:"POD_NAME" placeholder:"NAME" help:"The name of this process, for people. Default: the host's name."`
	logFlags
}

// connect prepares a connection by one of the functions of package kube. A faulty kubeconfig is a usage error.
func connect(by func(kubeconfig, agent string) (*kube.Cluster, error), kubeconfig, as string) (*kube.Cluster, error) {
	c, err := by(kubeconfig, "herald-"+as)
	if err != nil {
		return nil, &daemon.ConfigError{Err: err}
	}
	return c, nil
}

func (f clusterFlags) identity() string {
	if f.PodName != "" {
		return f.PodName
	}
	host, _ := os.Hostname() // without a name the Lease has none
	return host
}

type managerCommand struct {
	clusterFlags
	Domain string `placeholder:"DOMAIN" help:"The domain of tenants' Ingresses and Gateways, whose names are NAME.TENANT.DOMAIN. Default: none, and they are not served."`
}

// Run serves tenants until a signal.
func (c managerCommand) Run(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	cluster, err := connect(kube.Connect, c.Kubeconfig, "manager")
	if err != nil {
		return err
	}
	if c.Domain != "" && len(validation.IsDNS1123Subdomain(c.Domain)) > 0 {
		return &daemon.ConfigError{Err: fmt.Errorf("the domain is %q: want a name such as lb.example.net", c.Domain)}
	}
	manager.Run(ctx, c.logger(os.Stderr), cluster, manager.Options{Domain: c.Domain, Namespace: kube.Namespace(c.Namespace), Identity: c.identity()})
	return nil
}

type agentCommand struct {
	clusterFlags
	Cluster      string                 `required:"" placeholder:"NAME" help:"The name of this cluster's Tenant."`
	LoadBalancer string                 `required:"" placeholder:"FILE" help:"The kubeconfig of the cluster that serves it."`
	Secret       string                 `default:"${secret}" placeholder:"NAME" help:"The Secret with that kubeconfig, in which the agent renews the token (${default})."`
	Class        string                 `default:"${class}" placeholder:"NAME" help:"The loadBalancerClass of the Services to serve (${default})."`
	DefaultClass bool                   `default:"true" negatable:"" help:"Serve Services without a class, too (${default})."`
	AddressType  corev1.NodeAddressType `default:"InternalIP" enum:"InternalIP,ExternalIP" help:"The type of node addresses that the other cluster can reach: InternalIP or ExternalIP (${default})."`
}

// Run publishes Services until a signal.
func (c agentCommand) Run(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if !tenant.ValidName(c.Cluster) {
		return &daemon.ConfigError{Err: fmt.Errorf("the cluster is %q: want the name of its Tenant", c.Cluster)}
	}
	own, err := connect(kube.Connect, c.Kubeconfig, "agent")
	if err != nil {
		return err
	}
	remote, err := connect(kube.Connect, c.LoadBalancer, "agent")
	if err != nil {
		return err
	}
	agent.Run(ctx, c.logger(os.Stderr), own, remote, agent.Options{
		Scope: service.Scope{Class: c.Class, Default: c.DefaultClass}, AddressType: c.AddressType,
		Namespace: kube.Namespace(c.Namespace), Remote: v1alpha1.TenantNamespace(c.Cluster), Secret: c.Secret, Identity: c.identity(),
	})
	return nil
}

type tenantCommand struct {
	Kubeconfig tenantKubeconfigCommand `cmd:"" help:"Print the Secret with which a tenant's agent reaches this cluster, for kubectl apply -f - in its own."`
}

type tenantKubeconfigCommand struct {
	Name       string `arg:"" help:"The tenant."`
	Kubeconfig string `type:"path" placeholder:"FILE" help:"The kubeconfig of the cluster that serves tenants. Default: as kubectl, by KUBECONFIG or ~/.kube/config."`
	Server     string `placeholder:"URL" help:"The URL at which the agent reaches it. Default: as this command."`
}

// Run prints the Secret with a token of the agent's account. The token lasts 30 days, and the agent renews it.
func (c tenantKubeconfigCommand) Run(ctx context.Context) error {
	if !tenant.ValidName(c.Name) {
		return &daemon.ConfigError{Err: fmt.Errorf("the tenant is %q: want the name of a Tenant", c.Name)}
	}
	cluster, err := connect(kube.ConnectAsUser, c.Kubeconfig, "tenant")
	if err != nil {
		return err
	}
	token, _, err := cluster.RequestToken(ctx, v1alpha1.TenantNamespace(c.Name), tenant.AgentName, agent.TokenLasts)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%w: the account is there once a manager has seen the Tenant %s", err, c.Name)
	} else if err != nil {
		return err
	}
	kubeconfig, err := cluster.Kubeconfig(c.Server)
	if err != nil {
		return err
	}
	secret := corev1.Secret{StringData: map[string]string{kube.KeyKubeconfig: string(kubeconfig), kube.KeyToken: token}}
	secret.APIVersion, secret.Kind = "v1", "Secret"
	secret.Namespace, secret.Name = "herald-system", manifests.LoadBalancerSecret
	out, err := yaml.Marshal(secret)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(out)
	return err
}
