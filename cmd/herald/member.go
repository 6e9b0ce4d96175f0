package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/status/admin"
)

type memberCommand struct {
	List   memberListCommand   `cmd:"" help:"Show the members of the election and whether they vote."`
	Remove memberRemoveCommand `cmd:"" help:"Remove the vote of a member that is gone, without waiting for election.forget."`
}

type memberListCommand struct{ socketFlag }

func (c memberListCommand) Run(ctx context.Context) error {
	s, err := statusSoon(ctx, admin.NewClient(c.Socket))
	switch {
	case err != nil:
		return err
	case s.Election == nil:
		return errors.New("this node takes part in no election: its file has no election section")
	}
	return s.Election.WriteMembers(os.Stdout, time.Now())
}

type memberRemoveCommand struct {
	socketFlag
	Name string `arg:"" help:"The member's node name."`
}

func (c memberRemoveCommand) Run(ctx context.Context) error {
	if err := admin.NewClient(c.Socket).RemoveMember(ctx, c.Name); err != nil {
		return err
	}
	fmt.Printf("%s has no vote any more\n", c.Name)
	return nil
}

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
