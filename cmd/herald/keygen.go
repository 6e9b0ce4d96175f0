package main

import (
	"fmt"
	"os"

	"github.com/herald-vip/herald/election"
)

type keygenCommand struct {
	File string `arg:"" optional:"" help:"File to write, with mode 0600; it must not exist. Default: standard output."`
}

// Run writes a new gossip key, one line of base64.
func (c keygenCommand) Run() error {
	key, err := election.NewKey()
	if err != nil {
		return err
	}
	line := key + "\n"
	if c.File == "" {
		_, err := os.Stdout.WriteString(line)
		return err
	}
	f, err := os.OpenFile(c.File, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write the key: %w", err)
	}
	if _, err := f.WriteString(line); err != nil {
		f.Close()
		return fmt.Errorf("write the key: %w", err)
	}
	return f.Close()
}
