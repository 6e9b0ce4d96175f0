package election

import (
	"slices"
	"testing"

	"github.com/herald-vip/herald/testenv/fabric"
	"github.com/herald-vip/herald/testenv/wait"
)

func TestHandlerReceivesLiveMembers(t *testing.T) {
	virtually(t, 3, nil, func(t *testing.T, f *fabric.Fabric, c *cluster) {
		if alive := c.members[0].allAlive(); alive != nil {
			t.Fatalf("%v are alive before there is a configuration", alive)
		}
		c.start()
		first, all := c.members[0], []string{"m1", "m2", "m3"}
		knows := func(m *member, want []string) func() bool {
			return func() bool { return slices.Equal(m.sees(), want) && slices.Equal(m.allAlive(), want) }
		}
		for _, m := range c.members {
			wait.Until(t, m.name+" knows that all are alive", knows(m, all))
		}
		for _, m := range c.others(first) {
			f.Part(first.home, m.home, true)
		}
		wait.Until(t, "it knows that the others are gone", knows(first, all[:1]))
		wait.Until(t, "the others know that it is gone", knows(c.members[1], all[1:]))
		for _, m := range c.others(first) {
			f.Part(first.home, m.home, false)
		}
		wait.Until(t, "it knows that they are back", knows(first, all))
	})
}
