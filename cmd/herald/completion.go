package main

import "fmt"

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"The shell: bash, zsh or fish."`
}

// Run prints the shell commands for completion. The shell then runs herald with COMP_LINE set for candidates, and
// completes file names where there are none.
func (c completionCommand) Run() error {
	const bash = "complete -o default -o bashdefault -C herald herald\n"
	fmt.Print(map[string]string{
		"bash": bash,
		"zsh":  "autoload -U +X bashcompinit && bashcompinit\n" + bash,
		"fish": `function __herald_complete
    set -lx COMP_LINE (commandline -cp)
    herald
end
complete -c herald -f -a '(__herald_complete)'
complete -c herald -n 'test -z "$(__herald_complete)"' -F
`,
	}[c.Shell])
	return nil
}
