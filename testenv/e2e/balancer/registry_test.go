//go:build e2e

package balancer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/herald-vip/herald/testenv/e2e/site"
)

// blobSize is the size of a large image layer.
const blobSize = 200 << 20

// registryClient pushes and pulls blobs by the API of a registry (OCI distribution,
// section 4), as Docker and containerd do.
type registryClient struct {
	http    *http.Client
	address string
}

// registryClient returns a client inside a node, with a new connection for each
// request. A pull may last while a test waits for several events.
func (b *balanced) registryClient(node, address string) registryClient {
	client := site.HTTPClient(b.Node(node), nil)
	client.Timeout = 10 * site.Soon
	return registryClient{client, address}
}

// push uploads a blob in chunks, and makes the registry check its digest.
func (r registryClient) push(ctx context.Context, blob []byte) (digest string, err error) {
	const chunk = 16 << 20
	digest = fmt.Sprintf("sha256:%x", sha256.Sum256(blob))
	location, err := r.do(ctx, http.MethodPost, "http://"+r.address+"/v2/layers/blobs/uploads/", http.StatusAccepted, nil, nil)
	if err != nil {
		return "", err
	}
	for at := 0; at < len(blob); at += chunk {
		part := blob[at:min(at+chunk, len(blob))]
		location, err = r.do(ctx, http.MethodPatch, location, http.StatusAccepted, part, http.Header{
			"Content-Type":  {"application/octet-stream"},
			"Content-Range": {fmt.Sprintf("%d-%d", at, at+len(part)-1)},
		})
		if err != nil {
			return "", fmt.Errorf("chunk at %d: %w", at, err)
		}
	}
	separator := "?"
	if strings.Contains(location, "?") {
		separator = "&"
	}
	_, err = r.do(ctx, http.MethodPut, location+separator+"digest="+url.QueryEscape(digest), http.StatusCreated, nil, nil)
	return digest, err
}

// do makes a request and returns the Location of the answer.
func (r registryClient) do(ctx context.Context, method, where string, want int, body []byte, header http.Header) (location string, err error) {
	request, err := http.NewRequestWithContext(ctx, method, where, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	for key, values := range header {
		request.Header[key] = values
	}
	response, err := r.http.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if text, err := io.ReadAll(response.Body); err != nil || response.StatusCode != want {
		return "", fmt.Errorf("%s %s: %s, want %d: %s %w", method, where, response.Status, want, text, err)
	}
	return response.Header.Get("Location"), nil
}

// pull is a download in progress.
type pull struct {
	client  registryClient
	digest  string
	body    io.ReadCloser
	sum     hash.Hash
	got     int64
	resumed int
}

// pull begins to download a blob.
func (r registryClient) pull(ctx context.Context, digest string) (*pull, error) {
	p := &pull{client: r, digest: digest, sum: sha256.New()}
	return p, p.open(ctx)
}

// open requests the missing rest, over a new connection to any registry.
func (p *pull) open(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.client.address+"/v2/layers/blobs/"+p.digest, nil)
	if err != nil {
		return err
	}
	want := http.StatusOK
	if p.got > 0 {
		request.Header.Set("Range", "bytes="+strconv.FormatInt(p.got, 10)+"-")
		want = http.StatusPartialContent
	}
	response, err := p.client.http.Do(request)
	if err != nil {
		return err
	}
	if response.StatusCode != want {
		response.Body.Close()
		return fmt.Errorf("blob %s from %d: %s, want %d", p.digest, p.got, response.Status, want)
	}
	p.body = response.Body
	return nil
}

// read downloads that many bytes more, or with -1 the rest. When the connection breaks
// it continues over a new one.
func (p *pull) read(ctx context.Context, many int64) error {
	if many < 0 {
		many = blobSize - p.got
	}
	for many > 0 {
		n, err := io.CopyN(p.sum, p.body, many)
		p.got, many = p.got+n, many-n
		if err == nil {
			break
		}
		p.body.Close()
		p.resumed++
		if p.resumed > 10 {
			return fmt.Errorf("after %d bytes, again: %w", p.got, err)
		}
		if err := errors.Join(ctx.Err(), p.open(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// finish downloads the rest and checks the whole blob.
func (p *pull) finish(t *testing.T) {
	t.Helper()
	defer func() { p.body.Close() }()
	site.Must(t, p.read(t.Context(), -1))
	if got := fmt.Sprintf("sha256:%x", p.sum.Sum(nil)); got != p.digest {
		t.Errorf("the blob has come as %s, want %s", got, p.digest)
	}
}

// layer is a blob that was pushed from w1, through all registries.
type layer struct {
	*balanced
	client registryClient
	digest string
}

func (b *balanced) push(t *testing.T) layer {
	t.Helper()
	b.follow(t, threeMasters()...)
	blob := make([]byte, blobSize)
	seed := rand.NewChaCha8([32]byte{'b', 'l', 'o', 'b'})
	_, _ = seed.Read(blob) // it never fails
	l := layer{balanced: b, client: b.registryClient("w1", localRegistry)}
	l.digest = site.Get[string](t)(l.client.push(t.Context(), blob))
	return l
}

// begin pulls a part of the blob, and returns the master that serves it.
func (l layer) begin(t *testing.T) (p *pull, from string) {
	t.Helper()
	p = site.Get[*pull](t)(l.client.pull(t.Context(), l.digest))
	site.Must(t, p.read(t.Context(), 1<<20))
	return p, l.end(t, "w1", 5001)
}

// othersGo pulls the blob while two other registries fail: the third has the whole blob.
func (l layer) othersGo(t *testing.T) {
	p, from := l.begin(t)
	drained, killed := others(from)[0], others(from)[1]
	l.herald(t, drained, "drain")
	undrain := sync.OnceFunc(func() { l.herald(t, drained, "undrain") })
	defer undrain()
	site.Kill(t, l.Node(killed+"-registry"))
	mend := sync.OnceFunc(func() { site.Start(t, l.Node(killed+"-registry")) })
	defer mend()
	l.serve(t, "w1", "registry", from)

	again := site.Get[*pull](t)(l.client.pull(t.Context(), l.digest))
	again.finish(t)
	p.finish(t)
	if p.resumed+again.resumed > 0 {
		t.Errorf("%d and %d connections broke, want 0", p.resumed, again.resumed)
	}
	undrain()
	mend()
	l.serve(t, "w1", "registry", threeMasters()...)
}

// testRegistry pushes a blob and pulls it while registries fail: first the others,
// then the one in use.
func (b *balanced) testRegistry(t *testing.T) {
	l := b.push(t)
	t.Run("others go", l.othersGo)
	t.Run("drained", func(t *testing.T) {
		p, from := l.begin(t)
		b.herald(t, from, "drain")
		undrain := sync.OnceFunc(func() { b.herald(t, from, "undrain") })
		defer undrain()
		b.serve(t, "w1", "registry", others(from)...)
		p.finish(t)
		if p.resumed > 0 {
			t.Errorf("%d connections broke, want 0", p.resumed)
		}
		undrain()
		b.serve(t, "w1", "registry", threeMasters()...)
	})
	for _, f := range faults()[:2] {
		t.Run(f.name, func(t *testing.T) {
			p, from := l.begin(t)
			registry := b.Node(from + "-registry")
			f.make(t, registry)
			mend := sync.OnceFunc(func() { f.mend(t, registry) })
			defer mend()
			b.serve(t, "w1", "registry", others(from)...)
			p.finish(t)
			if p.resumed == 0 {
				t.Error("the connection to the registry did not break, so the test proves nothing")
			}
			mend()
			b.serve(t, "w1", "registry", threeMasters()...)
		})
	}
}
