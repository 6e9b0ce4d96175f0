package hostile

import (
	"fmt"
	"iter"
	"slices"
	"strings"
)

// Attack is a way to misbehave.
type Attack struct {
	// Name is one word.
	Name string
	// About describes the attack in half a sentence.
	About   string
	scripts func(*generator) iter.Seq[script]
}

// Behaved is no attack but an ordinary session, kept up until the context ends.
var Behaved = Attack{"behaved", "nothing: an ordinary session", single(script{stay: true})}

// Attacks returns all attacks. The ones described with "goes on" last until the
// speaker or the context ends them; the others end by themselves.
func Attacks() []Attack {
	return []Attack{
		{"truncated", "messages cut at every length, with and without that length in the header", all((*generator).truncated)},
		{"oversized", "messages of more than 4,096 octets, up to 65,535, agreed and not", all((*generator).oversized)},
		{"marker", "headers with a marker that is not all ones", all((*generator).marker)},
		{"lengths", "headers with a length below 19, or an impossible one for the type", all((*generator).lengths)},
		{"types", "messages of unknown types", all((*generator).types)},
		{"open", "OPENs with a wrong version, ASN, hold time, router ID or parameter length", all((*generator).openVariants)},
		{"capabilities", "capabilities of every code with a wrong length, too many of them, and extended parameters (RFC 9072)", all((*generator).capabilityVariants)},
		{"attribute-lengths", "UPDATEs with length fields that overrun one another", all((*generator).attributeLengths)},
		{"attribute-flags", "attributes with every combination of flags", all((*generator).attributeFlags)},
		{"unknown-attributes", "unknown attributes, optional and not", all((*generator).unknownAttributes)},
		{"duplicates", "attributes that appear twice and a hundred times", all((*generator).duplicates)},
		{"missing", "routes without a mandatory attribute", all((*generator).missing)},
		{"prefixes", "prefixes longer than an address", all((*generator).prefixes)},
		{"as4-path", "AS4_PATH before AS_PATH, alone, and longer", all((*generator).as4Path)},
		{"next-hop", "NEXT_HOP of 0 to 17 octets", all((*generator).nextHop)},
		{"multiprotocol", "malformed MP_REACH_NLRI and MP_UNREACH_NLRI, of families agreed on and not", all((*generator).multiprotocol)},
		{"notifications", "NOTIFICATIONs with every code, and texts that are too long, no text, or for a terminal", all((*generator).notifications)},
		{"route-refresh", "malformed ROUTE-REFRESHs, with outbound route filters too (RFC 5291)", all((*generator).routeRefresh)},
		{"mutations", "10,000 random changes of valid UPDATEs", (*generator).mutations},
		{"refresh-flood", "as many ROUTE-REFRESHs as the speaker takes; goes on", single(script{settle: true, messages: forever(refreshes())})},
		{"keepalive-flood", "200,000 KEEPALIVEs at once", single(script{messages: times(200, slices.Repeat(keepalive(), 1000))})},
		{"route-flood", "200,000 routes, one in each UPDATE", all((*generator).routeFlood)},
		{"attribute-flood", "UPDATEs filled up with AS paths and communities, of 4,096 and 65,535 octets", all((*generator).attributeFlood)},
		{"hold-time-zero", "a session without KEEPALIVEs that is not read from; goes on", all((*generator).holdTimeZero)},
		{"deaf", "a session that sends KEEPALIVEs but reads nothing; goes on", single(script{deaf: true, stay: true})},
		{"slow-open", "an OPEN of one octet a second; goes on", single(script{slowOpen: true})},
		{"slow-update", "an UPDATE of one octet a second; goes on", all((*generator).slowUpdate)},
		{"silence", "a connection without any message; goes on", single(script{mute: true})},
		{"resets", "1,000 connections that are reset in the middle of the OPEN", all((*generator).resets)},
		{"flaps", "200 sessions that end when they are up", all(func(*generator) []script { return slices.Repeat([]script{{settle: true}}, 200) })},
	}
}

// Find returns the named attack, or [Behaved].
func Find(name string) (Attack, error) {
	all := append(Attacks(), Behaved)
	if i := slices.IndexFunc(all, func(a Attack) bool { return a.Name == name }); i >= 0 {
		return all[i], nil
	}
	var names []string
	for _, a := range all {
		names = append(names, a.Name)
	}
	return Attack{}, fmt.Errorf("unknown attack %q, want one of %s", name, strings.Join(names, ", "))
}

// all prepares the connections of an attack in advance.
func all(scripts func(*generator) []script) func(*generator) iter.Seq[script] {
	return func(g *generator) iter.Seq[script] { return slices.Values(scripts(g)) }
}

// single returns an attack of one connection.
func single(s script) func(*generator) iter.Seq[script] {
	return all(func(*generator) []script { return []script{s} })
}

// each returns a session for every message.
func each(messages ...[]byte) (list []script) {
	for _, m := range messages {
		list = append(list, script{settle: true, messages: times(1, m)})
	}
	return list
}

// opens returns a connection for each of these OPENs.
func opens(messages ...[]byte) (list []script) {
	for _, m := range messages {
		list = append(list, script{open: m})
	}
	return list
}

// times repeats a message.
func times(n int, m []byte) iter.Seq[[]byte] { return slices.Values(slices.Repeat([][]byte{m}, n)) }

// refreshes returns ROUTE-REFRESHs of both families.
func refreshes() []byte {
	return slices.Repeat(slices.Concat(routeRefresh(afiIPv4, safiUnicast), routeRefresh(afiIPv6, safiUnicast)), 50)
}

// forever repeats a message until the connection ends.
func forever(m []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for yield(m) {
		}
	}
}

func (g *generator) routeFlood() []script {
	return []script{{stay: true, messages: func(yield func([]byte) bool) {
		for i := range 200_000 {
			if !yield(update(nil, g.attributes(), nlri(host(i)))) {
				return
			}
		}
	}}}
}

func (g *generator) attributeFlood() []script {
	flood := func(size int) iter.Seq[[]byte] {
		return func(yield func([]byte) bool) {
			for i := range 500 {
				if !yield(g.heavy(i, size)) {
					return
				}
			}
		}
	}
	return []script{
		{messages: flood(maxMessage)},
		{open: g.open(capability(capExtendedMessage)), messages: flood(maxExtended)},
	}
}

func (g *generator) holdTimeZero() []script {
	hello := open(4, g.asn16(), 0, g.RouterID, capabilities(g.capabilities()...))
	return []script{{open: hello, deaf: true, stay: true}}
}

func (g *generator) slowUpdate() []script {
	return []script{{settle: true, slow: true, messages: times(1, g.update(1))}}
}

func (g *generator) resets() (list []script) {
	hello := g.open()
	for range 1000 {
		list = append(list, script{open: hello[:g.IntN(len(hello))], abort: true})
	}
	return list
}
