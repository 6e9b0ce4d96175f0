package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Client is a client of a speaker's control socket.
type Client struct {
	path string
	http http.Client
}

// NewClient returns a client of the socket at path.
func NewClient(path string) *Client {
	var d net.Dialer
	return &Client{path: path, http: http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return d.DialContext(ctx, "unix", path)
		},
	}}}
}

// Status returns the state of the speaker.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	err := c.get(ctx, "/status", &s)
	return s, err
}

// Services returns every Service that is Herald's, as the speaker announces it.
func (c *Client) Services(ctx context.Context) ([]Service, error) {
	var s []Service
	err := c.get(ctx, "/services", &s)
	return s, err
}

func (c *Client) get(ctx context.Context, path string, dst any) error {
	body, err := c.do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, dst); err != nil {
		return fmt.Errorf("herald at %s answers something else than a status: is it of another version? %w", c.path, err)
	}
	return nil
}

// Drain withdraws every VIP with graceful shutdown. It returns at the end, or after limit if that is not 0; the drain
// then continues. The drain lasts until undrain or, unless untilUndrain is set, the end of the process. It waits for
// connections to end, at most until deadline.
func (c *Client) Drain(ctx context.Context, reason string, untilUndrain bool, deadline, limit time.Duration) error {
	form := url.Values{"reason": {reason}, "untilUndrain": {strconv.FormatBool(untilUndrain)}, "deadline": {deadline.String()}, "limit": {limit.String()}}
	_, err := c.do(ctx, http.MethodPost, "/drain", form)
	return err
}

// Undrain ends a drain.
func (c *Client) Undrain(ctx context.Context) error {
	_, err := c.do(ctx, http.MethodPost, "/undrain", nil)
	return err
}

// RemoveMember removes the vote of a member that has timed out. It returns once the other voters agree, or after the
// time for that.
func (c *Client) RemoveMember(ctx context.Context, member string) error {
	_, err := c.do(ctx, http.MethodPost, "/members/remove", url.Values{"name": {member}})
	return err
}

func (c *Client) do(ctx context.Context, method, path string, form url.Values) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://herald"+path, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var where *url.Error
		if errors.As(err, &where) {
			err = where.Err // the URL means nothing to the user
		}
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return nil, fmt.Errorf("herald on %s did not answer in time: %w", c.path, err)
		case errors.Is(err, fs.ErrPermission):
			return nil, fmt.Errorf("%s is for root alone: %w", c.path, err)
		}
		return nil, fmt.Errorf("no herald answers on %s: is `herald run` running on this node? %w", c.path, err)
	}
	defer resp.Body.Close()
	const limit = 16 << 20
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit))
	if err != nil {
		return nil, fmt.Errorf("herald at %s broke off: %w", c.path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("herald at %s: %s", c.path, strings.TrimSpace(string(body)))
	}
	return body, nil
}
