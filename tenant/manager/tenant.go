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
	"github.com/herald-vip/herald/service/kube"
	"github.com/herald-vip/herald/tenant"
)

// Annotations of a tenant's namespace, by which the policies of manifests/tenants refuse what the Tenant does not allow.
const (
	annotationNodePorts     = v1alpha1.Group + "/node-ports"
	annotationEndpointCIDRs = v1alpha1.Group + "/endpoint-cidrs"
	annotationDomains       = v1alpha1.Group + "/domains"
	annotationAnnotations   = v1alpha1.Group + "/ingress-annotations"
)

// keepTenant gives a tenant what its agent needs, has its nodes probed, and tells of it. One that is gone leaves nothing.
func (m *manager) keepTenant(ctx context.Context, name string) error {
	t, exists := m.known.Tenants.Get(name)
	if !exists || t.DeletionTimestamp != nil {
		return m.endTenant(ctx, name)
	}
	nodes, refused := m.nodes(t)
	err := errors.Join(m.furnish(ctx, t), m.prober.probe(name, t.Spec.Nodes.Probe, nodes), m.sweep(ctx, name))
	report := m.report(t, nodes, refused)
	if left := tenant.SilentAfter - time.Since(report.AgentLast); left > 0 {
		m.queue.AddAfter(name, left)
	}
	status := tenant.TenantStatus(t, report, time.Now())
	if equality.Semantic.DeepEqual(status, t.Status) {
		return err
	}
	return errors.Join(err, m.cluster.WriteTenantStatus(ctx, t, status))
}

// sweep deletes what was derived for a tenant and has lost its owner: a TCPLoadBalancer may be deleted so that what it owns stays.
func (m *manager) sweep(ctx context.Context, name string) error {
	var errs []error
	lost := func(o kube.Object) {
		if len(o.GetOwnerReferences()) == 0 {
			errs = append(errs, m.cluster.Delete(ctx, o))
		}
	}
	for s := range m.known.Services.In(tenant.Namespace(name)) {
		lost(s)
	}
	for s := range m.known.Slices.In(tenant.Namespace(name)) {
		lost(s)
	}
	for _, derived := range m.known.Derived {
		for o := range derived.In(tenant.Namespace(name)) {
			lost(o)
		}
	}
	return errors.Join(errs...)
}

// endTenant deletes a tenant's namespace, and with it all that is in there.
func (m *manager) endTenant(ctx context.Context, name string) error {
	m.mu.Lock()
	delete(m.heard, name)
	delete(m.furnished, name)
	m.mu.Unlock()
	if err := m.prober.probe(name, v1alpha1.TenantProbe{}, nil); err != nil {
		return err
	}
	if n, ok := m.known.Namespaces.Get(tenant.Namespace(name)); ok && n.DeletionTimestamp == nil {
		return m.cluster.Delete(ctx, n)
	}
	return nil
}

// furnish makes a tenant's namespace, with the limits that policies read there, the agent's account and rights, and a quota.
func (m *manager) furnish(ctx context.Context, t *v1alpha1.Tenant) error {
	var cidrs []string
	for _, c := range t.Spec.Endpoints.CIDRs {
		cidrs = append(cidrs, string(c))
	}
	limits := map[string]string{
		annotationNodePorts: t.Spec.Nodes.Ports, annotationEndpointCIDRs: strings.Join(cidrs, ","),
		annotationDomains: strings.Join(tenant.DomainsOf(t, m.domain), ","), annotationAnnotations: strings.Join(t.Spec.Ingress.Annotations, ","),
	}
	is, exists := m.known.Namespaces.Get(tenant.Namespace(t.Name))
	m.mu.Lock()
	has := m.furnished[t.Name]
	m.mu.Unlock()
	wants := tenantKey{t.UID, t.Generation}
	switch left := time.Until(has.recount); {
	case !exists || has.tenant != wants || !maps.Equal(is.Annotations, limits) || is.Labels[v1alpha1.LabelTenant] != t.Name:
		has = furnished{tenant: wants, tries: has.tries}
	case has.counted:
		return nil
	case left > 0: // an earlier event may have taken the place of the one that was to be
		m.queue.AddAfter(t.Name, left)
		return nil
	}
	ours := map[string]string{v1alpha1.LabelTenant: t.Name}
	in := metav1.ObjectMeta{Namespace: tenant.Namespace(t.Name), Name: tenant.AgentName, Labels: ours}
	quota := quotaOf(t, in, has.tries)
	for _, o := range []kube.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant.Namespace(t.Name), Labels: ours, Annotations: limits}},
		&corev1.ServiceAccount{ObjectMeta: in, AutomountServiceAccountToken: new(false)},
		&rbacv1.RoleBinding{
			ObjectMeta: in,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: tenant.AgentName},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: tenant.AgentName, Namespace: tenant.Namespace(t.Name)}},
		},
		quota,
	} {
		if err := m.cluster.Apply(ctx, tenant.ManagerName, o); err != nil {
			return err
		}
	}
	has.counted = true
	for limited := range quotaOf(t, in, 0).Spec.Hard {
		_, counted := quota.Status.Used[limited]
		has.counted = has.counted && counted
	}
	has.tries++
	after := min(recountFirst<<min(has.tries, 10), recountLast)
	has.recount = time.Now().Add(after)
	if !has.counted {
		m.queue.AddAfter(t.Name, after)
	}
	m.mu.Lock()
	m.furnished[t.Name] = has
	m.mu.Unlock()
	return nil
}

// furnished is what a tenant was given: all of a Tenant, and a quota, which is counted or is to be tried again.
type furnished struct {
	tenant  tenantKey
	counted bool
	tries   int
	recount time.Time
}

// Pauses before a quota that is not counted is written again, which grow.
const recountFirst, recountLast = time.Second, 5 * time.Minute

// quotaOf is the quota of a tenant. Until all of it is counted the API server refuses what it limits. Kubernetes' controller of quotas hears of new
// kinds every 30 s, and counts what it did not know before when the quota changes, or after five minutes. So each try is a change: the agent has
// one Lease, whether it may have two or not.
func quotaOf(t *v1alpha1.Tenant, meta metav1.ObjectMeta, tries int) *corev1.ResourceQuota {
	count := func(n int32) resource.Quantity { return *resource.NewQuantity(int64(n), resource.DecimalSI) }
	of := t.Spec.Quota
	return &corev1.ResourceQuota{ObjectMeta: meta, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
		"count/tcploadbalancers." + v1alpha1.Group:  count(of.Services + of.Routes),
		"count/httploadbalancers." + v1alpha1.Group: count(of.Routes),
		"count/secrets":                      count(2*of.Routes + 10), // cert-manager has two of each
		"count/services":                     count(of.Services + of.Routes),
		corev1.ResourceServicesLoadBalancers: count(of.Services),
		"count/leases.coordination.k8s.io":   count(int32(1 + tries%2)),
	}}}
}

// conflict is why a tenant cannot be served, or not by names.
func (m *manager) conflict(t *v1alpha1.Tenant) string {
	return cmp.Or(tenant.Conflict(t, m.known.Tenants.All()), tenant.ConflictOfDomains(t, m.known.Tenants.All(), m.domain))
}

// report is what there is to tell of a tenant.
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
	for lb := range m.known.Routes.In(tenant.Namespace(t.Name)) {
		if served(lb.Name, lb.Status.Conditions) {
			r.Routes++
		}
	}
	for lb := range m.known.LoadBalancers.In(tenant.Namespace(t.Name)) {
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
	r.AgentLast = m.heard[t.Name]
	r.AgentSilent = time.Since(r.AgentLast) >= tenant.SilentAfter
	return r
}
