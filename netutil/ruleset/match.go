package ruleset

import (
	"slices"

	"github.com/google/nftables/expr"
)

// Headers to [Load] from.
const (
	Network   = expr.PayloadBaseNetworkHeader
	Transport = expr.PayloadBaseTransportHeader
)

// Load loads a part of the packet's header into register 1, as all that follow use.
func Load(base expr.PayloadBase, offset, length uint32) []expr.Any {
	return []expr.Any{&expr.Payload{DestRegister: 1, Base: base, Offset: offset, Len: length}}
}

// Meta loads what is known of the packet besides its bytes.
func Meta(key expr.MetaKey) []expr.Any { return []expr.Any{&expr.Meta{Key: key, Register: 1}} }

// Equal goes on if that is what was loaded.
func Equal(data ...byte) []expr.Any {
	return []expr.Any{&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: data}}
}

// NotEqual goes on if something else was loaded.
func NotEqual(data ...byte) []expr.Any {
	return []expr.Any{&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: data}}
}

// In goes on if what was loaded is in the named set.
func In(name string) []expr.Any { return []expr.Any{&expr.Lookup{SourceRegister: 1, SetName: name}} }

// NotIn goes on if what was loaded is not in the named set.
func NotIn(name string) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: 1, SetName: name, Invert: true}}
}

// Join concatenates expressions.
func Join(parts ...[]expr.Any) []expr.Any { return slices.Concat(parts...) }
