package doctor

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/tenant"
)

// acme returns a tenant without problems.
func acme() v1alpha1.Tenant {
	t := v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "acme", Generation: 3}}
	t.Spec.Nodes.Probe = v1alpha1.TenantProbe{Protocol: "HTTP", Port: 10256, Path: "/healthz"}
	t.Status = v1alpha1.TenantStatus{ObservedGeneration: 3, Nodes: "9/10", Services: "7/100"}
	for _, kind := range []string{tenant.ConditionAgentHeard, tenant.ConditionNodes, tenant.ConditionReady} {
		t.Status.Conditions = append(t.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Message: "well"})
	}
	return t
}

// Each condition that is not true, and each refusal, is one warning. No problem of a tenant is a blocker.
func TestTenants(t *testing.T) {
	spoil := func(i int, status metav1.ConditionStatus, message string) func(*v1alpha1.Tenant) {
		return func(t *v1alpha1.Tenant) {
			t.Status.Conditions[i].Status, t.Status.Conditions[i].Message = status, message
		}
	}
	for _, test := range []struct {
		name   string
		change []func(*v1alpha1.Tenant)
		want   []string
	}{
		{"well", nil, nil},
		{"silent agent", []func(*v1alpha1.Tenant){spoil(0, metav1.ConditionFalse, "not heard")}, []string{"not heard"}},
		{"agent not seen yet", []func(*v1alpha1.Tenant){spoil(0, metav1.ConditionUnknown, "who knows")}, []string{"who knows"}},
		{"silent nodes", []func(*v1alpha1.Tenant){spoil(1, metav1.ConditionFalse, "no node answers")}, []string{"no node answers"}},
		{"a conflict", []func(*v1alpha1.Tenant){spoil(2, metav1.ConditionFalse, "overlaps")}, []string{"overlaps"}},
		{"two refusals, the first also in the condition", []func(*v1alpha1.Tenant){
			spoil(2, metav1.ConditionFalse, "default.web: no"),
			func(t *v1alpha1.Tenant) { t.Status.Refused = []string{"default.web: no", "default.blog: no"} },
		}, []string{"default.web: no", "default.blog: no"}},
		{"a refusal beside a conflict", []func(*v1alpha1.Tenant){
			spoil(2, metav1.ConditionFalse, "overlaps"), func(t *v1alpha1.Tenant) { t.Status.Refused = []string{"default.web: no"} },
		}, []string{"overlaps", "default.web: no"}},
		{"all at once", []func(*v1alpha1.Tenant){
			spoil(0, metav1.ConditionFalse, "not heard"), spoil(1, metav1.ConditionFalse, "no node answers"), spoil(2, metav1.ConditionFalse, "overlaps"),
		}, []string{"not heard", "no node answers", "overlaps"}},
		{"never looked at", []func(*v1alpha1.Tenant){func(t *v1alpha1.Tenant) { t.Status = v1alpha1.TenantStatus{} }}, []string{"no manager has acted on its current generation"}},
		{"changed since", []func(*v1alpha1.Tenant){func(t *v1alpha1.Tenant) { t.Generation++ }}, []string{"no manager has acted on its current generation"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			spoiled := acme()
			for _, change := range test.change {
				change(&spoiled)
			}
			c, f := node(t, routedFile)
			f.Tenants = []v1alpha1.Tenant{spoiled}
			var got []string
			for _, finding := range examine(c, f) {
				switch {
				case finding.Topic != "tenant":
				case finding.Subject != "acme":
					t.Errorf("unexpected subject %s: %+v", finding.Subject, finding)
				case finding.Severity == OK && finding.Seen != "9/10 nodes answer, 7/100 Services are served":
					t.Errorf("%+v", finding)
				case finding.Severity == Blocker, finding.Severity == Warning && (finding.Why == "" || finding.Cure == ""), finding.Severity == OK && len(test.want) > 0:
					t.Errorf("%+v", finding)
				case finding.Severity == Warning:
					got = append(got, finding.Seen)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// If the API server does not list Tenants, that is a warning; without Tenants there is no finding.
func TestTenantsUnknown(t *testing.T) {
	c, f := node(t, routedFile)
	for _, f := range examine(c, f) {
		if f.Topic == "tenant" {
			t.Errorf("without tenants: %+v", f)
		}
	}
	f.TenantsError = errors.New("list Tenants: no answer")
	if got := finding(t, examine(c, f), "tenant", "all"); got.Severity != Warning || got.Seen != f.TenantsError.Error() {
		t.Errorf("%+v", got)
	}
}
