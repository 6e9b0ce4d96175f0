// Package cosign signs files and container images in the forms that cosign verifies with a public key
// (https://github.com/sigstore/cosign/blob/main/specs/SIGNATURE_SPEC.md).
package cosign

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"

	"github.com/herald-vip/herald/manifests/release/oci"
)

// Cosign's media types and annotations of a signature in a registry.
const (
	payloadType = "application/vnd.dev.cosign.simplesigning.v1+json"
	annotation  = "dev.cosignproject.cosign/signature"
	claim       = "cosign container image signature"
)

// Key is a private key.
type Key struct{ key *ecdsa.PrivateKey }

// ParseKey reads a private key: PKCS#8 in PEM, ECDSA on the curve P-256, without a password.
func ParseKey(data []byte) (Key, error) {
	block, _ := pem.Decode(data)
	if block == nil {
		return Key{}, errors.New("want a private key in PEM")
	}
	if block.Type != "PRIVATE KEY" {
		return Key{}, errors.New("this is an " + strings.ToLower(block.Type) + ": want a PRIVATE KEY without a password, as openssl genpkey writes it")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return Key{}, err
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return Key{}, errors.New("want a key for ECDSA on the curve P-256")
	}
	return Key{key}, nil
}

// Sign returns the signature of data in base64, the form of .sig files. It is deterministic.
func (k Key) Sign(data []byte) (string, error) {
	sum := sha256.Sum256(data)
	signature, err := k.key.Sign(nil, sum[:], crypto.SHA256) // without randomness: RFC 6979
	return base64.StdEncoding.EncodeToString(signature), err
}

// SignManifest returns the artifact with the signature of a manifest, which cosign finds in the same registry.
// name is that of the repository.
func (k Key) SignManifest(name string, manifest v1.Hash) (oci.Artifact, error) {
	var p payload
	p.Critical.Identity.Reference = name
	p.Critical.Image.Digest = manifest.String()
	p.Critical.Type = claim
	data, err := json.Marshal(p)
	if err != nil {
		return oci.Artifact{}, err
	}
	signature, err := k.Sign(data)
	if err != nil {
		return oci.Artifact{}, err
	}
	image, err := mutate.Append(oci.Empty(), mutate.Addendum{
		Layer: static.NewLayer(data, payloadType), Annotations: map[string]string{annotation: signature},
	})
	return oci.Artifact{Image: image, Tag: manifest.Algorithm + "-" + manifest.Hex + ".sig"}, err
}

// payload is the signed part of a manifest, in Red Hat's simple signing format.
type payload struct {
	Critical struct {
		Identity struct {
			Reference string `json:"docker-reference"`
		} `json:"identity"`
		Image struct {
			Digest string `json:"docker-manifest-digest"`
		} `json:"image"`
		Type string `json:"type"`
	} `json:"critical"`
	Optional map[string]string `json:"optional"`
}
