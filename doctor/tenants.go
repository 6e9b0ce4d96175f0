package doctor

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/doctor/facts"
	"github.com/herald-vip/herald/tenant"
)

// examineTenants repeats what the manager tells of each tenant. None of it is this node's fault.
func examineTenants(_ *config.Config, f *facts.Facts, out *findings) {
	if f.TenantsError != nil {
		out.warning("all", f.TenantsError.Error(), "Whether there are tenants, and what is wrong with them, is missing from this report.", "herald status; kubectl get tenants")
	}
	for _, t := range f.Tenants {
		before := len(out.all)
		examineTenant(&t, out)
		if len(out.all) == before {
			out.fine(t.Name, fmt.Sprintf("%s nodes answer, %s Services are served", t.Status.Nodes, t.Status.Services))
		}
	}
}

func examineTenant(t *v1alpha1.Tenant, out *findings) {
	if t.Status.ObservedGeneration != t.Generation {
		out.warning(t.Name, "no manager has acted on it as it is now", "What it allows is not in force.", "kubectl -n herald-system logs deployment/herald-manager")
	}
	if c := lacking(t, tenant.ConditionAgentHeard); c != nil {
		out.warning(t.Name, c.Message, "What changes in its cluster has no effect here.",
			"in its cluster: kubectl -n herald-system logs deployment/herald-agent; if its token is over: herald tenant kubeconfig "+t.Name)
	}
	if c := lacking(t, tenant.ConditionNodes); c != nil {
		out.warning(t.Name, c.Message, "Which of its nodes serve is not known.",
			fmt.Sprintf("compare spec.nodes of the Tenant with its cluster's nodes; from a node here, try one of them: curl http://NODE:%d%s", t.Spec.Nodes.Probe.Port, t.Spec.Nodes.Probe.Path))
	}
	var refused []string // the first is as a rule what the condition says
	if c := lacking(t, tenant.ConditionReady); c != nil {
		refused = append(refused, c.Message)
	}
	for _, sentence := range slices.Compact(append(refused, t.Status.Refused...)) {
		out.warning(t.Name, sentence, "Its owner asks for more than is served.",
			fmt.Sprintf("kubectl -n %s get tcploadbalancers,httploadbalancers -o wide; correct the Tenant, or what its cluster asks for", v1alpha1.TenantNamespace(t.Name)))
	}
}

// lacking is a condition that does not hold; nil if it holds, or nobody has told of it yet.
func lacking(t *v1alpha1.Tenant, kind string) *metav1.Condition {
	if c := meta.FindStatusCondition(t.Status.Conditions, kind); c != nil && c.Status != metav1.ConditionTrue {
		return c
	}
	return nil
}
