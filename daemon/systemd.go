package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
)

// notifySystemd tells systemd that the speaker is ready, and then, if the unit
// has a watchdog, that it is alive: each time it has taken every lock there is.
// Outside systemd it does nothing.
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
			announced := 0
			vips := d.Status().VIPs
			for _, v := range vips {
				if v.Stage == "announced" {
					announced++
				}
			}
			notify(d.log, fmt.Sprintf("%s\nSTATUS=%d of %d addresses announced", sd.SdNotifyWatchdog, announced, len(vips)))
		}
	}
}

func notifyReady(log *slog.Logger)    { notify(log, sd.SdNotifyReady) }
func notifyStopping(log *slog.Logger) { notify(log, sd.SdNotifyStopping) }
func notifyReloading(log *slog.Logger) {
	notify(log, sd.SdNotifyReloading+"\n"+sd.SdNotifyMonotonicUsec())
}

func notify(log *slog.Logger, state string) {
	if _, err := sd.SdNotify(false, state); err != nil {
		log.Warn("tell systemd", "err", err)
	}
}
