package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/herald-vip/herald/testenv/hostile"
)

type hostileCmd struct {
	Attack  []string       `default:"all" placeholder:"NAME" help:"The attacks, in this order; all means all of them, list lists them."`
	ASN     uint32         `default:"64500" name:"asn" help:"The own AS number."`
	ID      netip.Addr     `default:"10.255.0.66" name:"id" help:"The own router ID."`
	Seed    uint64         `default:"1" help:"Determines all random choices."`
	For     time.Duration  `default:"5s" help:"End an attack after this long."`
	Forever bool           `help:"Begin again at the end, with another seed."`
	Listen  string         `default:":179" placeholder:"HOST:PORT" help:"Wait for the speaker's connections here."`
	Connect netip.AddrPort `placeholder:"HOST:PORT" help:"Connect to the speaker at HOST:PORT instead."`
	Local   netip.Addr     `placeholder:"ADDRESS" help:"The own address when connecting."`
}

// Run attacks until ctx ends or all attacks are done. Each attack's outcomes are a line of the
// log.
func (c *hostileCmd) Run(ctx context.Context) error {
	if slices.Equal(c.Attack, []string{"list"}) {
		for _, a := range hostile.Attacks() {
			fmt.Printf("%-20s %s\n", a.Name, a.About)
		}
		return nil
	}
	attacks, err := c.attacks()
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	for seed := c.Seed; ; seed++ {
		for _, a := range attacks {
			if err := c.attack(ctx, log, a, seed); err != nil {
				return err
			}
			if ctx.Err() != nil {
				return nil
			}
		}
		if !c.Forever {
			log.Info("all attacks are done")
			return nil
		}
	}
}

// attacks returns the requested attacks.
func (c *hostileCmd) attacks() ([]hostile.Attack, error) {
	var out []hostile.Attack
	for _, name := range c.Attack {
		if name == "all" {
			out = append(out, hostile.Attacks()...)
			continue
		}
		a, err := hostile.Find(name)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

func (c *hostileCmd) attack(ctx context.Context, log *slog.Logger, a hostile.Attack, seed uint64) error {
	ctx, cancel := context.WithTimeout(ctx, c.For)
	defer cancel()
	p := hostile.Peer{ASN: c.ASN, RouterID: c.ID, Seed: seed}
	if c.Connect.IsValid() {
		p.Connect = hostile.Dial(c.Local, c.Connect)
	} else {
		var config net.ListenConfig
		l, err := config.Listen(ctx, "tcp", c.Listen)
		if err != nil {
			return err
		}
		defer l.Close()
		p.Connect = hostile.Accept(l)
	}
	tally := make(map[string]int)
	began := time.Now()
	err := p.Run(ctx, a, func(o hostile.Outcome) { tally[o.String()]++ })
	log.Info("attack is over", "attack", a.Name, "seed", seed, "took", time.Since(began).Round(time.Millisecond), "connections", strings.TrimPrefix(fmt.Sprint(tally), "map"))
	return err
}
