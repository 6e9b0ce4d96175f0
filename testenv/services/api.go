package services

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/herald-vip/herald/testenv/lab"
)

// API is an API server, spoken to in JSON as an administrator. It shares nothing with
// how announcers speak to it.
type API struct {
	http *http.Client
}

// StatusError is an answer of the API server that is none of success.
type StatusError struct {
	// Code is the HTTP status.
	Code int
	// Text is what the server said.
	Text string
}

// Error says what was asked and what the answer was.
func (e *StatusError) Error() string { return fmt.Sprintf("%d %s", e.Code, e.Text) }

// IsConflict reports whether an error says that there is such an object, or another version of it.
func IsConflict(err error) bool {
	s, ok := errors.AsType[*StatusError](err)
	return ok && s.Code == http.StatusConflict
}

// newAPI speaks to the API server from the node that it is on.
func newAPI(pki string, n *lab.Node) (*API, error) {
	ca, err := os.ReadFile(filepath.Join(pki, "ca.crt"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &API{&http.Client{
		Timeout: 30 * time.Second,
		Transport: &http.Transport{
			DialContext:         n.DialContext,
			TLSClientConfig:     &tls.Config{RootCAs: roots, ServerName: "kubernetes"},
			MaxIdleConnsPerHost: writers,
		},
	}}, nil
}

// Get reads an object, or a list of them, into out; with nil it only asks.
func (a *API) Get(ctx context.Context, path string, out any) error {
	return a.do(ctx, http.MethodGet, path, "", nil, out)
}

// Create creates an object, which is a Go value or its YAML as []byte.
func (a *API) Create(ctx context.Context, collection string, object any) error {
	return a.do(ctx, http.MethodPost, collection, "", object, nil)
}

// Patch merges (RFC 7396) into the object at the path, or into its status with a path
// that ends in /status.
func (a *API) Patch(ctx context.Context, path string, patch any) error {
	return a.do(ctx, http.MethodPatch, path, "application/merge-patch+json", patch, nil)
}

// Replace writes a whole object.
func (a *API) Replace(ctx context.Context, path string, object any) error {
	return a.do(ctx, http.MethodPut, path, "", object, nil)
}

// Delete removes an object.
func (a *API) Delete(ctx context.Context, path string) error {
	return a.do(ctx, http.MethodDelete, path, "", nil, nil)
}

func (a *API) do(ctx context.Context, method, path, content string, in, out any) error {
	var body []byte
	switch in := in.(type) {
	case nil:
	case []byte:
		body = in
		if content == "" {
			content = "application/yaml"
		}
	default:
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	if content == "" {
		content = "application/json"
	}
	request, err := http.NewRequestWithContext(ctx, method, "https://127.0.0.1:6443"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+adminUser+"-token")
	request.Header.Set("Accept", "application/json")
	request.Header.Set("Content-Type", content)
	response, err := a.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %w", method, path, &StatusError{response.StatusCode, string(text)})
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(text, out)
}

// define has the API server know the definitions in these files, and waits until it does.
func (a *API) define(ctx context.Context, files []string) error {
	const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := a.Create(ctx, definitions, text); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return Eventually(ctx, func() error {
		var list struct {
			Items []struct {
				Metadata struct{ Name string }
				Status   struct {
					Conditions []struct{ Type, Status string }
				}
			}
		}
		if err := a.Get(ctx, definitions, &list); err != nil {
			return err
		}
		for _, d := range list.Items {
			established := false
			for _, c := range d.Status.Conditions {
				established = established || c.Type == "Established" && c.Status == "True"
			}
			if !established {
				return fmt.Errorf("%s is not established", d.Metadata.Name)
			}
		}
		return nil
	})
}
