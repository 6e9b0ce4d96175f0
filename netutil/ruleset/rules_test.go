package ruleset

import (
	"reflect"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// decodeRule returns what encodeRule wrote: chain, comment, size and first counter.
func TestRule(t *testing.T) {
	b, err := encodeRule(&nftables.Table{Name: "t", Family: nftables.TableFamilyINet}, "c", Rule{Comment: "what it does", Exprs: Join(
		Meta(expr.MetaKeyL4PROTO), Equal(6), []expr.Any{&Ct{Ct: expr.Ct{Key: expr.CtKeyPROTODST, Register: 1}, Reply: true}},
		[]expr.Any{&expr.Counter{Packets: 7}}, []expr.Any{&expr.Counter{Packets: 8}},
	)})
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeRule(append(make([]byte, 4), b...))
	if want := (Rule{Chain: "c", Comment: "what it does", Size: 5, Packets: 7}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

// decodeRule decodes or rejects any answer of the kernel.
func FuzzDecodeRule(f *testing.F) {
	for _, rule := range []Rule{{}, {Comment: "x", Exprs: Join(Load(Network, 16, 4), In("s"), []expr.Any{&expr.Counter{Packets: 1}})}} {
		b, err := encodeRule(&nftables.Table{Name: "t"}, "c", rule)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(append(make([]byte, 4), b...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := decodeRule(b); err == nil && r.Size > len(b) {
			t.Errorf("%d expressions in %d bytes", r.Size, len(b))
		}
	})
}
