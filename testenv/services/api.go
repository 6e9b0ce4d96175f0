package services

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/herald-vip/herald/testenv/lab"
)

// API is a client of an API server that reads and writes objects by their paths.
type API struct{ client *rest.RESTClient }

// NewAPI returns a client with the configuration.
func NewAPI(c *rest.Config) (*API, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // to decode error responses
	c.QPS, c.Timeout, c.WarningHandler = -1, 30*time.Second, rest.NoWarnings{}
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(c)
	return &API{client}, err
}

// Connect returns a client of the API server in a node's network, as an administrator, and waits
// until the server is ready. Its certificate is of the CA in the folder.
func Connect(ctx context.Context, n *lab.Node, folder string) (*API, error) {
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	a, err := NewAPI(&rest.Config{
		Host: "https://127.0.0.1:6443", Dial: n.DialContext, BearerToken: "harness-token",
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(folder, "ca.crt"), ServerName: "kubernetes"},
	})
	if err != nil {
		return nil, err
	}
	return a, a.Ready(ctx)
}

// Ready waits until the API server is ready.
func (a *API) Ready(ctx context.Context) error {
	return Eventually(ctx, func() error { return a.Get(ctx, "/readyz", nil) })
}

// Close closes idle connections.
func (a *API) Close() { utilnet.CloseIdleConnectionsFor(a.client.Client.Transport) }

// Get reads an object, or a list of them, into out; with nil it only makes the request.
func (a *API) Get(ctx context.Context, path string, out any) error {
	return a.Do(ctx, http.MethodGet, path, nil, out)
}

// Create creates an object, given as a Go value or as YAML in a []byte.
func (a *API) Create(ctx context.Context, collection string, object any) error {
	return a.Do(ctx, http.MethodPost, collection, object, nil)
}

// Patch merges (RFC 7396) into the object at the path, or into its status if the path
// ends in /status.
func (a *API) Patch(ctx context.Context, path string, patch any) error {
	return a.Do(ctx, http.MethodPatch, path, patch, nil)
}

// Replace writes a whole object.
func (a *API) Replace(ctx context.Context, path string, object any) error {
	return a.Do(ctx, http.MethodPut, path, object, nil)
}

// Delete removes an object.
func (a *API) Delete(ctx context.Context, path string) error {
	return a.Do(ctx, http.MethodDelete, path, nil, nil)
}

// Do makes a request, and reads the answer into out unless it is nil.
func (a *API) Do(ctx context.Context, method, path string, in, out any) error {
	request, err := a.request(method, path, in)
	if err != nil {
		return err
	}
	result := request.Do(ctx)
	if err := result.Error(); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if out == nil {
		return nil
	}
	text, err := result.Raw()
	return errors.Join(err, json.Unmarshal(text, out))
}

// Ask makes a request and returns the HTTP status and the text of the answer, even if
// it is an error. For a watch it returns only the status, because the first event may
// take long.
func (a *API) Ask(ctx context.Context, method, path string, in any) (status int, answer string, err error) {
	request, err := a.request(method, path, in)
	if err != nil {
		return 0, "", err
	}
	if strings.Contains(path, "watch=1") {
		stream, err := request.Stream(ctx)
		if err != nil {
			return 0, "", err
		}
		return http.StatusOK, "", stream.Close()
	}
	result := request.Do(ctx)
	text, err := result.Raw()
	if result.StatusCode(&status); status != 0 {
		err = nil
	}
	return status, string(text), err
}

// Table returns kubectl's table of a collection.
func (a *API) Table(ctx context.Context, path string) (table metav1.Table, err error) {
	text, err := a.client.Get().RequestURI(path).SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(ctx).Raw()
	if err != nil {
		return table, err
	}
	return table, json.Unmarshal(text, &table)
}

func (a *API) request(method, path string, in any) (*rest.Request, error) {
	request := a.client.Verb(method).RequestURI(path)
	if in == nil {
		return request, nil
	}
	content := "application/yaml"
	body, ok := in.([]byte)
	if !ok {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return nil, err
		}
		content = "application/json"
	}
	if method == http.MethodPatch {
		content = "application/merge-patch+json"
	}
	return request.SetHeader("Content-Type", content).Body(body), nil
}

// Definitions is the path of the definitions of kinds.
const Definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// Define creates the definitions in these files, and waits until all definitions are established.
func (a *API) Define(ctx context.Context, files ...string) error {
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := a.Create(ctx, Definitions, text); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return Eventually(ctx, func() error {
		var list struct {
			Items []struct {
				Metadata struct{ Name string }
				Status   struct{ Conditions []metav1.Condition }
			}
		}
		if err := a.Get(ctx, Definitions, &list); err != nil {
			return err
		}
		for _, d := range list.Items {
			if !meta.IsStatusConditionTrue(d.Status.Conditions, "Established") {
				return fmt.Errorf("%s is not established", d.Metadata.Name)
			}
		}
		return nil
	})
}
