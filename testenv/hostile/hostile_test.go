package hostile

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/herald-vip/herald/testenv/must"
)

func newPeer(seed uint64) *Peer {
	return &Peer{ASN: 4200000000, RouterID: netip.MustParseAddr("10.0.0.66"), Seed: seed}
}

var families = map[bgp.Family]bgp.BGPAddPathMode{bgp.RF_IPv4_UC: 0, bgp.RF_IPv6_UC: 0}

// parse reads a message as a speaker would.
func parse(m []byte) (*bgp.BGPMessage, error) {
	header := &bgp.BGPHeader{}
	if err := header.DecodeFromBytes(m); err != nil {
		return nil, err
	}
	message, err := bgp.ParseBGPBody(header, m[headerLength:], &bgp.MarshallingOption{AddPath: families, ExtendedMessage: true})
	if err != nil {
		return nil, err
	}
	if update, ok := message.Body.(*bgp.BGPUpdate); ok {
		_, err = bgp.ValidateUpdateMsg(update, families, true, false, false)
	}
	return message, err
}

// The attacks start from valid messages, so that only their change is wrong.
func TestValidMessagesAreValid(t *testing.T) {
	g := newGenerator(newPeer(1), "")
	all := append(g.valid(), g.open(), g.oldOpen(), g.open(capability(capExtendedMessage)), g.heavy(7, maxMessage), g.heavy(7, maxExtended), keepalive())
	for _, m := range all {
		if _, err := parse(m); err != nil {
			t.Errorf("% x: %v", m[:min(len(m), 64)], err)
		}
	}
	for _, size := range []int{maxMessage, maxExtended} {
		if n := len(g.heavy(1, size)); n > size || n < size-4 {
			t.Errorf("a heavy UPDATE has %d octets, want %d or hardly less", n, size)
		}
	}
}

// bytesOf returns all bytes that an attack would send in its first connections.
func bytesOf(p *Peer, a Attack) []byte {
	const most = 1 << 20
	var all bytes.Buffer
	for s := range a.scripts(newGenerator(p, a.Name)) {
		all.Write(s.open)
		if s.messages != nil {
			for m := range s.messages {
				if all.Write(m); all.Len() > most {
					break
				}
			}
		}
		if all.Len() > most {
			break
		}
	}
	return all.Bytes()
}

func TestAttacksDependOnTheSeedOnly(t *testing.T) {
	names := make(map[string]bool)
	for _, a := range Attacks() {
		if names[a.Name] || strings.ContainsAny(a.Name, " ,") || a.About == "" {
			t.Errorf("attack %q: its name is not one unique word, or it has no description", a.Name)
		}
		names[a.Name] = true
		if !bytes.Equal(bytesOf(newPeer(1), a), bytesOf(newPeer(1), a)) {
			t.Errorf("%s: two runs differ", a.Name)
		}
	}
	mutations := must.Get[Attack](t)(Find("mutations"))
	if bytes.Equal(bytesOf(newPeer(1), mutations), bytesOf(newPeer(2), mutations)) {
		t.Error("two seeds make the same mutations")
	}
	if _, err := Find("nonsense"); err == nil || !strings.Contains(err.Error(), "mutations") {
		t.Errorf("an unknown attack: %v, want the names there are", err)
	}
}

// A speaker should refuse neither all mutants, which would test only its first check, nor few.
func TestMutantsReachAllParts(t *testing.T) {
	g := newGenerator(newPeer(1), "mutations")
	handling := make(map[bgp.ErrorHandling]int)
	for range 10_000 {
		_, err := parse(g.mutant())
		var e *bgp.MessageError
		switch {
		case err == nil:
			handling[bgp.ERROR_HANDLING_NONE]++
		case errors.As(err, &e):
			handling[e.ErrorHandling]++
		default:
			t.Fatalf("an error of another kind: %v", err)
		}
	}
	t.Logf("%v", handling)
	for _, h := range []bgp.ErrorHandling{
		bgp.ERROR_HANDLING_NONE, bgp.ERROR_HANDLING_ATTRIBUTE_DISCARD, bgp.ERROR_HANDLING_TREAT_AS_WITHDRAW,
		bgp.ERROR_HANDLING_AFISAFI_DISABLE, bgp.ERROR_HANDLING_SESSION_RESET,
	} {
		if n := handling[h]; n < 10 || n > 7000 {
			t.Errorf("%d of 10,000 mutants take path %d", n, h)
		}
	}
}

// A connection without a message from the speaker does not count.
func TestRunRetriesUntilTheSpeakerSpeaks(t *testing.T) {
	p := newPeer(1)
	calls := 0
	p.Connect = func(context.Context) (net.Conn, error) {
		calls++
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			if calls > 2 {
				_, _ = theirs.Write(p.open())
				_, _ = theirs.Write(notification(6, 5))
			}
		}()
		return ours, nil
	}
	var got []string
	must.Do(t, p.Run(t.Context(), Behaved, func(o Outcome) { got = append(got, o.String()) }))
	if calls != 3 || len(got) != 1 || got[0] != "refused with NOTIFICATION 6/5" {
		t.Errorf("%d connections, outcomes %q", calls, got)
	}
}
