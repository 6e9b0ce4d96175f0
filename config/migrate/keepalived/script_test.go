package keepalived

import "testing"

// Whatever the command, it becomes a check that Herald takes, or none.
func FuzzScript(f *testing.F) {
	for _, s := range []string{
		"curl -sf http://127.0.0.1/", "curl -o", "curl http://u:p@h/", "nc -z h 1", "nc -w", "</dev/tcp/::1/1", "bash -c '</dev/tcp/a/1'", "check_apiserver.sh", "sh -c", "curl -k https://[::1", "curl --cacert",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, command string) {
		s, ok := readScript(command)
		if !ok {
			return
		}
		if (s.check.HTTP == nil) == (s.check.TCP == nil) {
			t.Errorf("neither http nor tcp, or both: %+v", s.check)
		}
	})
}
