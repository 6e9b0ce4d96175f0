package metallb

import "testing"

// shellWord returns one word of a shell.
func TestCommandsAreWords(t *testing.T) {
	for in, want := range map[string]string{
		"a": "a", "": "''", "a b": "'a b'", "$(reboot)": "'$(reboot)'", "a'b": `'a'\''b'`, "a\nb": "ab", "-n": "-n", "10.1.0.1,fd00::1": "10.1.0.1,fd00::1",
	} {
		if got := shellWord(in); got != want {
			t.Errorf("%q becomes %s, want %s", in, got, want)
		}
	}
}
