package lab_test

import (
	"testing"

	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/must"
)

// TestPart splits a LAN and checks that only the parts lose each other.
func TestPart(t *testing.T) {
	l := start(t, parse(t, flat), lab.Options{})
	a, b, c := l.Node("a"), l.Node("b"), l.Node("c")
	ab, ba, ac, cb := newTalk(t, a, b, "10.0.0.2"), newTalk(t, b, a, "10.0.0.1"), newTalk(t, a, c, "10.0.0.3"), newTalk(t, c, b, "10.0.0.2")
	all := []*talk{ab, ba, ac, cb}
	for _, k := range all {
		k.works()
	}

	must.Do(t, l.Part("sw", []string{"a"}, []string{"b"}))
	ab.say("lost")
	ba.say("lost")
	ac.works() // c is in neither part
	cb.works()

	must.Do(t, l.Part("sw", []string{"a", "b"}, []string{"c"}))
	ac.say("lost")
	cb.say("lost")
	ab.works()
	ba.works()

	must.Do(t, l.Part("sw"))
	for _, k := range all {
		k.works()
	}

	link := l.Link("b:eth1", "sw")
	must.Do(t, link.Deafen("b", l.Link("a", "sw").MAC("a")))
	ab.say("lost")
	ba.works()
	cb.works()
	must.Do(t, link.Cut())
	must.Do(t, link.Heal())
	ab.say("lost still")
	must.Do(t, link.Deafen("b"))
	ab.works()
}
