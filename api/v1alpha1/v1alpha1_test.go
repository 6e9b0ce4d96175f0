package v1alpha1_test

import (
	"encoding/json"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/testenv/must"
)

const (
	crds     = "../../manifests/crds"
	deepcopy = "zz_generated.deepcopy.go"
)

// TestCurrent runs the generator as go generate does, elsewhere, and compares.
func TestCurrent(t *testing.T) {
	doc := must.Get[[]byte](t)(os.ReadFile("doc.go"))
	directive := regexp.MustCompile(`(?m)^//go:generate (go run .*)$`).FindSubmatch(doc)
	if directive == nil {
		t.Fatal("doc.go has no go:generate")
	}
	dir := t.TempDir()
	args := strings.Fields(strings.Replace(string(directive[1]), crds, dir, 1))
	cmd := exec.CommandContext(t.Context(), args[0], append(args[1:], "output:object:dir="+dir)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	current := must.Get[[]string](t)(filepath.Glob(crds + "/*.yaml"))
	current = append(current, deepcopy)
	made := must.Get[[]os.DirEntry](t)(os.ReadDir(dir))
	if len(made) != 8 || len(current) != 8 {
		t.Errorf("generated %v, there are %q: want seven CRDs and a Go file", made, current)
	}
	for _, file := range current {
		want, err := os.ReadFile(filepath.Join(dir, filepath.Base(file)))
		if err != nil {
			t.Error(err)
			continue
		}
		have := must.Get[[]byte](t)(os.ReadFile(file))
		if diff := cmp.Diff(string(want), string(have)); diff != "" {
			t.Errorf("%s is not current, run go generate ./api/v1alpha1 (-want +have):\n%s", file, diff)
		}
	}
}

// TestScheme makes an object of each kind by its name.
func TestScheme(t *testing.T) {
	scheme := runtime.NewScheme()
	must.Do(t, v1alpha1.AddToScheme(scheme))
	for kind, want := range map[string]runtime.Object{
		"AddressPool":     &v1alpha1.AddressPool{},
		"AddressPoolList": &v1alpha1.AddressPoolList{},
		"BGPPeer":         &v1alpha1.BGPPeer{},
		"BGPPeerList":     &v1alpha1.BGPPeerList{},
	} {
		got, err := scheme.New(v1alpha1.GroupVersion().WithKind(kind))
		if err != nil {
			t.Error(err)
			continue
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", kind, diff)
		}
	}
}

// DeepCopy of a peer, which is written by hand, shares no memory with the original.
func TestPeerDeepCopy(t *testing.T) {
	var full v1alpha1.Peer
	fill(reflect.ValueOf(&full).Elem())
	if diff := cmp.Diff(full, *full.DeepCopy(), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("copy (-original +copy):\n%s", diff)
	}
	a, b := reflect.ValueOf(full), reflect.ValueOf(*full.DeepCopy())
	for _, f := range reflect.VisibleFields(a.Type()) {
		if k := f.Type.Kind(); (k == reflect.Pointer || k == reflect.Slice) && a.FieldByIndex(f.Index).Pointer() == b.FieldByIndex(f.Index).Pointer() {
			t.Errorf("the copy shares %s", f.Name)
		}
	}
}

// fill sets the exported fields of v, pointers and lists of one item included.
func fill(v reflect.Value) {
	switch {
	case v.Type() == reflect.TypeFor[netip.Addr]():
		v.Set(reflect.ValueOf(netip.IPv6LinkLocalAllNodes()))
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case v.Kind() == reflect.String:
		v.SetString("text")
	case v.CanInt():
		v.SetInt(7)
	case v.CanUint():
		v.SetUint(7)
	}
}

// TestSelector matches labels with the selectors of a pool.
func TestSelector(t *testing.T) {
	node := labels.Set{"rack": "a", "kubernetes.io/os": "linux"}
	for selector, want := range map[string]bool{
		`{}`:                              true,
		`{"matchLabels": {"rack": "a"}}`:  true,
		`{"matchLabels": {"rack": "b"}}`:  false,
		`{"matchLabels": {"other": "a"}}`: false,
		`{"matchExpressions": [{"key": "rack", "operator": "In", "values": ["b", "a"]}]}`:                               true,
		`{"matchExpressions": [{"key": "rack", "operator": "NotIn", "values": ["b", "a"]}]}`:                            false,
		`{"matchExpressions": [{"key": "kubernetes.io/os", "operator": "Exists"}]}`:                                     true,
		`{"matchLabels": {"rack": "a"}, "matchExpressions": [{"key": "kubernetes.io/os", "operator": "DoesNotExist"}]}`: false,
	} {
		var s v1alpha1.LabelSelector
		must.Do(t, json.Unmarshal([]byte(selector), &s))
		matcher, err := s.Selector()
		if err != nil {
			t.Errorf("%s: %v", selector, err)
			continue
		}
		if got := matcher.Matches(node); got != want {
			t.Errorf("%s selects %v: %t", selector, node, got)
		}
	}
	s := v1alpha1.LabelSelector{MatchLabels: map[string]string{"rack": "not a value"}}
	if _, err := s.Selector(); err == nil {
		t.Error("a label that no object can have makes a selector")
	}
}

func TestASN(t *testing.T) {
	for _, tt := range []struct {
		text string
		want v1alpha1.ASN
		ok   bool
	}{
		{text: `64500`, want: 64500, ok: true},
		{text: `4294967294`, want: 4294967294, ok: true},
		{text: `"external"`, want: v1alpha1.External, ok: true},
		{text: `4294967295`},
		{text: `4294967296`},
		{text: `-1`},
		{text: `1.5`},
		{text: `"64500"`},
		{text: `"internal"`},
		{text: `[]`},
		{text: ``},
	} {
		var got v1alpha1.ASN
		if err := got.UnmarshalJSON([]byte(tt.text)); got != tt.want || (err == nil) != tt.ok {
			t.Errorf("%s: got %d, error %v", tt.text, got, err)
		}
		if !tt.ok {
			continue
		}
		if text, err := json.Marshal(tt.want); err != nil || string(text) != tt.text {
			t.Errorf("%d is written %s, error %v, want %s", tt.want, text, err, tt.text)
		}
	}
}

// An ASN that was read is written in the same form and reads back.
func FuzzASN(f *testing.F) {
	f.Add([]byte(`64500`))
	f.Add([]byte(`"external"`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var first, again v1alpha1.ASN
		if first.UnmarshalJSON(text) != nil {
			return
		}
		written, err := first.MarshalJSON()
		if err != nil || again.UnmarshalJSON(written) != nil || again != first {
			t.Errorf("%q: %d is written %q and read as %d, error %v", text, first, written, again, err)
		}
	})
}

func TestParseCommunity(t *testing.T) {
	for s, want := range map[string]v1alpha1.Community{
		"0:0":                 0,
		"64512:100":           64512<<16 | 100,
		"65535:65535":         0xffffffff,
		"graceful-shutdown":   65535 << 16,
		"blackhole":           65535<<16 | 666,
		"no-export":           65535<<16 | 65281,
		"no-advertise":        65535<<16 | 65282,
		"no-export-subconfed": 65535<<16 | 65283,
		"no-peer":             65535<<16 | 65284,
	} {
		if got, err := v1alpha1.ParseCommunity(s); err != nil || got != want {
			t.Errorf("Parse(%q) = %#x, %v, want %#x", s, uint32(got), err, uint32(want))
		}
	}
	for _, s := range []string{"", ":", "1", "1:", "1:2:3", "65536:0", "0:65536", "-1:0", "+1:0", "1: 2", "0x1:0", "No-Export"} {
		if got, err := v1alpha1.ParseCommunity(s); err == nil {
			t.Errorf("Parse(%q) = %#x, want an error", s, uint32(got))
		}
	}
}

func TestParseLargeCommunity(t *testing.T) {
	for s, want := range map[string]v1alpha1.LargeCommunity{
		"0:0:0":                            {},
		"64512:1:2":                        {Global: 64512, Local1: 1, Local2: 2},
		"4294967294:4294967295:4294967295": {Global: 1<<32 - 2, Local1: 1<<32 - 1, Local2: 1<<32 - 1},
	} {
		if got, err := v1alpha1.ParseLargeCommunity(s); err != nil || got != want {
			t.Errorf("ParseLarge(%q) = %v, %v, want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "1:2", "1:2:3:4", "1:2:4294967296", "1:2:-3", "4294967295:1:2", "no-export"} {
		if got, err := v1alpha1.ParseLargeCommunity(s); err == nil {
			t.Errorf("ParseLarge(%q) = %v, want an error", s, got)
		}
	}
}
