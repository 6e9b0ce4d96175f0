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

// examineTenants reports the conditions of each tenant. None is a fault of this node.
func examineTenants(_ *config.Config, f *facts.Facts, out *findings) {
	if f.TenantsError != nil {
		out.warning("all", f.TenantsError.Error(), "This report lacks the tenants.", "herald status; kubectl get tenants")
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
		out.warning(t.Name, "no manager has acted on its current generation", "Its current permissions are not in force.", "kubectl -n herald-system logs deployment/herald-manager")
	}
	if c := lacking(t, tenant.ConditionAgentHeard); c != nil {
		out.warning(t.Name, c.Message, "Changes in its cluster have no effect here.",
			"in its cluster: kubectl -n herald-system logs deployment/herald-agent; if its token has expired: herald tenant kubeconfig "+t.Name)
	}
	if c := lacking(t, tenant.ConditionNodes); c != nil {
		out.warning(t.Name, c.Message, "Herald does not know which of its nodes serve.",
			fmt.Sprintf("compare spec.nodes of the Tenant with its cluster's nodes; from a node here, try one of them: curl http://NODE:%d%s", t.Spec.Nodes.Probe.Port, t.Spec.Nodes.Probe.Path))
	}
	var refused []string // the first usually repeats the condition's message
	if c := lacking(t, tenant.ConditionReady); c != nil {
		refused = append(refused, c.Message)
	}
	for _, sentence := range slices.Compact(append(refused, t.Status.Refused...)) {
		out.warning(t.Name, sentence, "The tenant requests more than Herald serves.",
			fmt.Sprintf("kubectl -n %s get tcploadbalancers,httploadbalancers -o wide; correct the Tenant, or what its cluster asks for", v1alpha1.TenantNamespace(t.Name)))
	}
}

// lacking returns the condition of this type if it is not true; nil if it is true or absent.
func lacking(t *v1alpha1.Tenant, kind string) *metav1.Condition {
	if c := meta.FindStatusCondition(t.Status.Conditions, kind); c != nil && c.Status != metav1.ConditionTrue {
		return c
	}
	return nil
}
