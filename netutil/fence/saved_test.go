package fence

import "testing"

// Other programs may save the fence's tables and load them again. An open address stays open.
func TestReload(t *testing.T) {
	for _, o := range []Options{{}, {Services: true}, {Services: true, HostPorts: true}} {
		s := newWire(t)
		f := s.node.fenceWith(o)
		s.node.Must(f.Filter(vip.addrs()...))
		if o.Services {
			s.node.Must(f.FilterServices(vip[0].Addr()))
		}
		s.node.open(f.Open, vip.addrs()...)
		s.node.Reload()
		s.node.Must(f.Check())
		if restored := f.status().Restored; restored != 0 {
			t.Errorf("%+v: restored %d times", o, restored)
		}
		for _, addr := range vip.addrs() {
			if !s.answers(addr) {
				t.Errorf("%+v: node does not answer for %s", o, addr)
			}
		}
	}
}
