package manager

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/internal/wake"
	"github.com/herald-vip/herald/service/kube"
	"github.com/herald-vip/herald/tenant"
)

// Annotations of a tenant's namespace: the limits that the policies of manifests/tenants enforce.
const (
	annotationNodePorts     = v1alpha1.Group + "/node-ports"
	annotationEndpointCIDRs = v1alpha1.Group + "/endpoint-cidrs"
	annotationDomains       = v1alpha1.Group + "/domains"
	annotationAnnotations   = v1alpha1.Group + "/ingress-annotations"
)

// keepTenant creates the objects that a tenant's agent needs, probes its nodes and reports its status. It removes all
// objects of a deleted tenant.
func (m *manager) keepTenant(ctx context.Context, name string) error {
	t, exists := m.known.Tenants.Get(name)
	if !exists || t.DeletionTimestamp != nil {
		return m.endTenant(ctx, name)
	}
	nodes, refused := m.nodes(t)
	err := errors.Join(m.furnish(ctx, t), m.prober.probe(name, t.Spec.Nodes.Probe, nodes), m.sweep(ctx, name))
	report := m.report(t, nodes, refused)
	if left := tenant.TimeoutAfter - time.Since(report.AgentLast); left > 0 {
		m.queue.AddAfter(name, left)
	}
	status := tenant.TenantStatus(t, report, time.Now())
	if equality.Semantic.DeepEqual(status, t.Status) {
		return err
	}
	return errors.Join(err, m.cluster.WriteStatus(ctx, t, status))
}

// sweep deletes derived objects without an owner: deleting a TCPLoadBalancer with --cascade=orphan leaves them behind.
func (m *manager) sweep(ctx context.Context, name string) error {
	var errs []error
	lost := func(o kube.Object) {
		if len(o.GetOwnerReferences()) == 0 {
			errs = append(errs, m.cluster.Delete(ctx, o))
		}
	}
	for s := range m.known.Services.In(v1alpha1.TenantNamespace(name)) {
		lost(s)
	}
	for s := range m.known.Slices.In(v1alpha1.TenantNamespace(name)) {
		lost(s)
	}
	for _, derived := range m.known.Derived {
		for o := range derived.In(v1alpha1.TenantNamespace(name)) {
			lost(o)
		}
	}
	return errors.Join(errs...)
}

// endTenant deletes a tenant's namespace with all its objects.
func (m *manager) endTenant(ctx context.Context, name string) error {
	m.mu.Lock()
	delete(m.heartbeats, name)
	delete(m.furnished, name)
	m.mu.Unlock()
	if err := m.prober.probe(name, v1alpha1.TenantProbe{}, nil); err != nil {
		return err
	}
	if n, ok := m.known.Namespaces.Get(v1alpha1.TenantNamespace(name)); ok && n.DeletionTimestamp == nil {
		return m.cluster.Delete(ctx, n)
	}
	return nil
}

// furnish creates a tenant's namespace with the annotations of its limits, the agent's account and rights, and a quota.
func (m *manager) furnish(ctx context.Context, t *v1alpha1.Tenant) error {
	var cidrs []string
	for _, c := range t.Spec.Endpoints.CIDRs {
		cidrs = append(cidrs, string(c))
	}
	limits := map[string]string{
		annotationNodePorts: t.Spec.Nodes.Ports, annotationEndpointCIDRs: strings.Join(cidrs, ","),
		annotationDomains: strings.Join(tenant.DomainsOf(t, m.domain), ","), annotationAnnotations: strings.Join(t.Spec.Ingress.Annotations, ","),
	}
	current, exists := m.known.Namespaces.Get(v1alpha1.TenantNamespace(t.Name))
	m.mu.Lock()
	given := m.furnished[t.Name]
	m.mu.Unlock()
	wants := tenantKey{t.UID, t.Generation}
	switch left := time.Until(given.recount); {
	case !exists || given.tenant != wants || !maps.Equal(current.Annotations, limits) || current.Labels[v1alpha1.LabelTenant] != t.Name:
		given = furnished{tenant: wants, tries: given.tries}
	case given.counted:
		return nil
	case left > 0: // an earlier event may have replaced the scheduled one
		m.queue.AddAfter(t.Name, left)
		return nil
	}
	ours := map[string]string{v1alpha1.LabelTenant: t.Name}
	in := metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace(t.Name), Name: tenant.AgentName, Labels: ours}
	quota := quotaOf(t, in, given.tries)
	for _, o := range []kube.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.TenantNamespace(t.Name), Labels: ours, Annotations: limits}},
		&corev1.ServiceAccount{ObjectMeta: in, AutomountServiceAccountToken: new(false)},
		&rbacv1.RoleBinding{
			ObjectMeta: in,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: tenant.AgentName},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: tenant.AgentName, Namespace: v1alpha1.TenantNamespace(t.Name)}},
		},
		quota,
	} {
		if err := m.cluster.Apply(ctx, tenant.ManagerName, o); err != nil {
			return err
		}
	}
	given.counted = true
	for limited := range quotaOf(t, in, 0).Spec.Hard {
		_, counted := quota.Status.Used[limited]
		given.counted = given.counted && counted
	}
	given.tries++
	after := recounts.After(given.tries)
	given.recount = time.Now().Add(after)
	if !given.counted {
		m.queue.AddAfter(t.Name, after)
	}
	m.mu.Lock()
	m.furnished[t.Name] = given
	m.mu.Unlock()
	return nil
}

// furnished records the version of a Tenant that was furnished, and whether its quota is counted or is retried.
type furnished struct {
	tenant  tenantKey
	counted bool
	tries   int
	recount time.Time
}

// recounts are the pauses before a quota that is not counted is written again.
var recounts = wake.Backoff{Min: 2 * time.Second, Max: 5 * time.Minute}

// quotaOf returns the quota of a tenant. The API server refuses the limited objects until the quota counts them all.
// Kubernetes' quota controller discovers new kinds every 30 s, but counts them only when the quota changes, or after five
// minutes. So each try changes the quota: it alternates the limit of Leases (the agent has one).
func quotaOf(t *v1alpha1.Tenant, meta metav1.ObjectMeta, tries int) *corev1.ResourceQuota {
	count := func(n int32) resource.Quantity { return *resource.NewQuantity(int64(n), resource.DecimalSI) }
	limit := t.Spec.Quota
	return &corev1.ResourceQuota{ObjectMeta: meta, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
		"count/tcploadbalancers." + v1alpha1.Group:  count(limit.Services + limit.Routes),
		"count/httploadbalancers." + v1alpha1.Group: count(limit.Routes),
		"count/secrets":                      count(2*limit.Routes + 10), // cert-manager has two of each
		"count/services":                     count(limit.Services + limit.Routes),
		corev1.ResourceServicesLoadBalancers: count(limit.Services),
		"count/leases.coordination.k8s.io":   count(int32(1 + tries%2)),
	}}}
}

// conflict returns why a tenant, or its routes, cannot be served; empty if they can.
func (m *manager) conflict(t *v1alpha1.Tenant) string {
	return cmp.Or(tenant.Conflict(t, m.known.Tenants.All()), tenant.ConflictOfDomains(t, m.known.Tenants.All(), m.domain))
}

// report returns the state of a tenant.
func (m *manager) report(t *v1alpha1.Tenant, nodes []tenant.Node, refused []string) tenant.Report {
	r := tenant.Report{Conflict: m.conflict(t), Nodes: len(nodes), Refused: refused}
	answers, known := m.prober.answers(t, nodes)
	r.Probing = !known
	for _, n := range nodes {
		if answers(n.Name) {
			r.Answer++
		}
	}
	vips := make(map[string]bool)
	var sentences []string
	served := func(name string, conditions []metav1.Condition) bool {
		ready := meta.FindStatusCondition(conditions, tenant.ConditionReady)
		if ready != nil && ready.Status == metav1.ConditionFalse {
			sentences = append(sentences, name+": "+ready.Message)
		}
		return ready != nil && ready.Status == metav1.ConditionTrue
	}
	for lb := range m.known.Routes.In(v1alpha1.TenantNamespace(t.Name)) {
		if served(lb.Name, lb.Status.Conditions) {
			r.Routes++
		}
	}
	for lb := range m.known.LoadBalancers.In(v1alpha1.TenantNamespace(t.Name)) {
		if served(lb.Name, lb.Status.Conditions) && !lb.Spec.Internal {
			r.Served++
		}
		for _, addr := range lb.Status.Addresses {
			vips[addr] = true
		}
	}
	slices.Sort(sentences)
	r.Refused, r.Addresses = append(r.Refused, sentences...), len(vips)
	m.mu.Lock()
	defer m.mu.Unlock()
	r.AgentLast = m.heartbeats[t.Name]
	r.AgentTimedOut = time.Since(r.AgentLast) >= tenant.TimeoutAfter
	return r
}
