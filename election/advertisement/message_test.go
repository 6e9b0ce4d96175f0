package advertisement

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/config"
)

func TestMessages(t *testing.T) {
	for name, m := range map[string]message{
		"challenge": {From: "w1", Challenge: 1 << 63},
		"nothing":   {From: "m1", Run: 1, Advertisement: Advertisement{Checks: map[string]bool{}}},
		"all": {From: strings.Repeat("m", 255), Run: 1<<64 - 1, Sequence: 1<<64 - 1, Response: 7, Hold: maxHold, Left: true, Peers: []uint32{0, 1<<32 - 1},
			Advertisement: Advertisement{Draining: true, Passing: true, Checks: map[string]bool{"apiserver": true, "registry": false, strings.Repeat("x", maxCheckName): true}}},
		"passes on": {From: "m1", Run: 1, Advertisement: Advertisement{Passing: true, Checks: map[string]bool{}}},
	} {
		b, omitted := m.append([]byte("before"))
		b = b[len("before"):]
		if got, err := parse(b); err != nil || omitted > 0 || !reflect.DeepEqual(got, m) || !IsMessage(b) {
			t.Errorf("%s: %+v, %d omitted, %v", name, got, omitted, err)
		}
		for i := range b {
			if m, err := parse(b[:i]); err == nil {
				t.Errorf("%s: the first %d bytes are parsed as %+v", name, i, m)
			}
		}
		if got, err := parse(append(b, "of a later release"...)); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%s, and more: %+v, %v", name, got, err)
		}
		b[2] |= ^byte(flagChallenge | flagDraining | flagLeft | flagPassing)
		if got, err := parse(b); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%s, with flags of a later release: %+v, %v", name, got, err)
		}
	}
}

func TestMessageLimits(t *testing.T) {
	many, long := make(map[string]bool), make(map[string]bool)
	for i := range 100 {
		many[fmt.Sprintf("c%02d", i)] = true
		long[fmt.Sprintf("%02d%s", i, strings.Repeat("x", maxCheckName-2))] = true
	}
	for _, test := range []struct {
		checks         map[string]bool
		first          string
		least, omitted int
	}{
		{many, "c00", maxChecks, 100 - maxChecks},
		{long, "00" + strings.Repeat("x", maxCheckName-2), 10, 100 - 11},
		{map[string]bool{"": true, strings.Repeat("x", maxCheckName+1): true, "short": true}, "short", 1, 2},
	} {
		b, omitted := message{From: strings.Repeat("m", 253), Run: 1, Advertisement: Advertisement{Checks: test.checks}}.append(nil)
		m, err := parse(b)
		if err != nil || len(b) > maxMessage || omitted != test.omitted || len(m.Advertisement.Checks) < test.least || !m.Advertisement.Checks[test.first] {
			t.Errorf("%d bytes with %d checks, %d omitted: %v", len(b), len(m.Advertisement.Checks), omitted, err)
		}
	}
}

// TestAdvertisementsOfValidConfigurationsFit checks that the advertisement of every valid configuration with last-resort VIPs fits
// into a message.
func TestAdvertisementsOfValidConfigurationsFit(t *testing.T) {
	for name, test := range map[string]struct {
		checks, length, last int // number of checks, and lengths of their names
		fits                 bool
	}{
		"many":     {maxChecks - 1, 3, 3, true},
		"too many": {maxChecks, 3, 3, false},
		"long":     {13, maxCheckName, 48, true},
		"too long": {13, maxCheckName, 49, false},
	} {
		file := "apiVersion: herald.dev/v1alpha1\nkind: Speaker\nnodeName: m1\nelection: {insecure: true, members: {m1: \"10.0.1.1:7946\"}}\n" +
			"vips: [{name: control-plane, addresses: [10.0.1.100], announce: arp, whenAllFail: keep, checks: [0" + strings.Repeat("x", test.length-1) + "]}]\nchecks:\n"
		a := Advertisement{Checks: map[string]bool{config.AdvertisedVIP + "control-plane": true}}
		for i := range test.checks {
			length := test.length
			if i == test.checks-1 {
				length = test.last
			}
			check := fmt.Sprint(i)
			check += strings.Repeat("x", length-len(check))
			a.Checks[check] = true
			file += fmt.Sprintf("- {name: %s, tcp: {address: \"127.0.0.1:6443\"}}\n", check)
		}
		_, err := config.Parse("herald.yaml", []byte(file))
		_, omitted := message{From: "m1", Run: 1, Sequence: 1<<64 - 1, Hold: maxHold, Peers: make([]uint32, maxPeers), Advertisement: a}.append(nil)
		if (err == nil) != test.fits || (omitted == 0) != test.fits {
			t.Errorf("%s: %d names do not fit; %v", name, omitted, err)
		}
	}
}

func TestMalformedMessages(t *testing.T) {
	good, _ := message{From: "m1", Run: 1, Sequence: 1, Hold: time.Second, Advertisement: Advertisement{Checks: map[string]bool{"a": true, "b": true}}}.append(nil)
	change := func(at int, value byte) []byte {
		b := bytes.Clone(good)
		b[at] = value
		return b
	}
	end := len(good)
	for name, b := range map[string][]byte{
		"empty":               nil,
		"another magic":       change(0, 1),
		"another version":     change(1, 2),
		"no name":             {magic, version, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		"no challenge":        {magic, version, flagChallenge, 1, 'a', 0, 0, 0, 0, 0, 0, 0, 0},
		"run 0":               change(6+7, 0),
		"a check twice":       change(end-1, 'a'),
		"a check of no name":  change(end-2, healthyBit),
		"a check too long":    append(change(end-2, 64), make([]byte, 64)...),
		"too many peers":      append(change(end-6, maxPeers+1), make([]byte, 4*maxPeers+100)...),
		"too many checks":     append(change(end-5, maxChecks+1), make([]byte, 100)...),
		"far too long":        append(bytes.Clone(good), make([]byte, maxMessage)...),
		"an endless sequence": append([]byte{magic, version, 0, 1, 'a', 0, 0, 0, 0, 0, 0, 0, 1}, bytes.Repeat([]byte{0xff}, 20)...),
	} {
		if m, err := parse(b); err == nil {
			t.Errorf("%s: %+v", name, m)
		}
	}
	forever, _ := message{From: "m1", Run: 1, Hold: 1 << 60}.append(nil)
	if m, err := parse(forever); err != nil || m.Hold != maxHold {
		t.Errorf("an advertisement holds for %v: %v", m.Hold, err)
	}
}

// FuzzMessages feeds messages of any holder of the key to a table.
func FuzzMessages(f *testing.F) {
	for _, m := range []message{
		{From: "w1", Challenge: 1},
		{From: "m1", Run: 1, Sequence: 2, Response: 3, Hold: time.Second, Advertisement: Advertisement{Draining: true, Passing: true, Checks: map[string]bool{"apiserver": true, "registry": false}}},
		{From: "m1", Run: 1, Sequence: 3, Left: true},
	} {
		b, _ := m.append(nil)
		f.Add(b)
	}
	now := time.Unix(1000, 0)
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parse(b)
		if err != nil {
			return
		}
		again, omitted := m.append(nil)
		if got, err := parse(again); err != nil || omitted > 0 || !reflect.DeepEqual(got, m) || len(again) > maxMessage {
			t.Fatalf("%+v becomes %+v, %d omitted: %v", m, got, omitted, err)
		}
		c := fair("a", 1)
		c.setOwn(now, Advertisement{Checks: map[string]bool{"apiserver": true}})
		c.receive(now, m)
		m.Response = 1
		c.receive(now, m)
		c.expire(now.Add(maxHold)) // it may assume its own lateness
		c.expire(now.Add(2 * maxHold))
		for _, o := range c.list(now) {
			if !o.Self && !o.TimedOut {
				t.Fatalf("%+v never times out", o)
			}
		}
	})
}
