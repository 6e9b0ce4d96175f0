package stub

import (
	"context"
	"fmt"
	"net"
	"net/http"
)

// Tell sets a check's answer from now on. The control is the address and path of the
// check, as in 127.0.0.1:6443/stub/readyz.
func Tell(ctx context.Context, dial func(ctx context.Context, network, address string) (net.Conn, error), control, parameters string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+control+"?"+parameters, nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the stub answers %s", resp.Status)
	}
	return nil
}
