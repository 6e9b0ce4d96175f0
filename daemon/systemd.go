package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"

	"github.com/herald-vip/herald/speaker"
	"github.com/herald-vip/herald/status/admin"
)

// notifySystemd reports to systemd that the speaker is ready and then, if the unit has a watchdog, that it is alive,
// after each time that it could take every lock. Outside systemd it does nothing.
func (d *Daemon) notifySystemd(ctx context.Context) error {
	interval, err := sd.SdWatchdogEnabled(false)
	if err != nil {
		return fmt.Errorf("systemd watchdog: %w", err)
	}
	notifyReady(d.log)
	if interval == 0 {
		<-ctx.Done()
		return nil
	}
	ticker := time.NewTicker(interval / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			notify(d.log, sd.SdNotifyWatchdog+"\nSTATUS="+statusLine(d.Status()))
		}
	}
}

// statusLine returns the line that systemctl status shows.
func statusLine(s admin.Status) string {
	announced := 0
	for _, v := range s.VIPs {
		if v.State == speaker.Announced {
			announced++
		}
	}
	text := fmt.Sprintf("%d of %d addresses announced", announced, len(s.VIPs))
	if len(s.Balancers) == 0 {
		return text
	}
	serving := 0
	for _, b := range s.Balancers {
		if b.Serving() > 0 {
			serving++
		}
	}
	return fmt.Sprintf("%s, %d of %d balancers have backends", text, serving, len(s.Balancers))
}

func notifyReady(log *slog.Logger) { notify(log, sd.SdNotifyReady) }

func notifyStopping(log *slog.Logger) { notify(log, sd.SdNotifyStopping) }

func notifyReloading(log *slog.Logger) {
	notify(log, sd.SdNotifyReloading+"\n"+sd.SdNotifyMonotonicUsec())
}

func notify(log *slog.Logger, state string) {
	if _, err := sd.SdNotify(false, state); err != nil {
		log.Warn("cannot tell systemd", "err", err)
	}
}
