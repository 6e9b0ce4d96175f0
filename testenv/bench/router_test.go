package bench

import "testing"

func TestFRRBFDUp(t *testing.T) {
	const out = `[{"peer":"10.1.1.1","status":"up"},{"peer":"10.1.2.1","status":"down"},{"peer":"10.1.3.1","status":"up"}]`
	if up, err := frrBFDUp(out); up != 2 || err != nil {
		t.Errorf("%d, %v", up, err)
	}
	if _, err := frrBFDUp("% Unknown command"); err == nil {
		t.Error("no JSON is no error")
	}
}

func TestBIRDBFDUp(t *testing.T) {
	const out = `BIRD 2.0.12 ready.
bfd1:
IP address                Interface  State      Since         Interval  Timeout
10.2.1.1                  eth1       Up         12:00:00.000    0.050    0.150
10.2.2.1                  eth2       Down       12:00:00.000    1.000    0.000
10.2.3.1                  eth3       Up         12:00:00.000    0.050    0.150
`
	if up := birdBFDUp(out); up != 2 {
		t.Errorf("%d", up)
	}
}
