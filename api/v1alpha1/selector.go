package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// LabelSelectors select the objects that one of them selects.
//
// +listType=atomic
// +kubebuilder:validation:MaxItems=16
type LabelSelectors []LabelSelector

// LabelSelector selects objects that have all of these labels and meet all of
// these requirements; an empty one selects all.
// ---
// It is [metav1.LabelSelector] with limits, so that the API server can bound the cost of its rules.
type LabelSelector struct {
	// MatchLabels are labels and their values.
	// +kubebuilder:validation:MaxProperties=16
	MatchLabels map[string]string `json:"matchLabels,omitempty"`
	// MatchExpressions are requirements on labels.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	MatchExpressions []LabelRequirement `json:"matchExpressions,omitempty"`
}

// LabelRequirement is a requirement on one label.
//
// +kubebuilder:validation:XValidation:rule="(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",message="In and NotIn need values, Exists and DoesNotExist have none"
type LabelRequirement struct {
	// Key is the label.
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$')",message="want the name of a label, such as zone or example.com/zone"
	Key string `json:"key"`
	// Operator relates the label to the values: `In`, `NotIn`, `Exists` or `DoesNotExist`.
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
	Operator metav1.LabelSelectorOperator `json:"operator"`
	// Values are the operands of `In` and `NotIn`.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	Values []string `json:"values,omitempty"`
}

// Selector returns the selector in the form that matches labels. It fails if a label or value
// is invalid, which the API server does not refuse everywhere.
func (s *LabelSelector) Selector() (labels.Selector, error) {
	plain := metav1.LabelSelector{MatchLabels: s.MatchLabels}
	for _, r := range s.MatchExpressions {
		plain.MatchExpressions = append(plain.MatchExpressions, metav1.LabelSelectorRequirement(r))
	}
	return metav1.LabelSelectorAsSelector(&plain)
}
