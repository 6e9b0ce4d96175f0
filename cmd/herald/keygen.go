package main

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
)

type keygenCommand struct {
	File string `arg:"" optional:"" help:"File to write, with mode 0600; it must not exist. Default: standard output."`
}

// Run writes a new gossip key, one line of base64.
func (c keygenCommand) Run() error {
	key := make([]byte, 32) // AES-256
	rand.Read(key)          // never fails
	line := base64.StdEncoding.EncodeToString(key) + "\n"
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
