package handlers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/weirhq/weir/controlplane"
)

const (
	// fingerprintKey is where a deployment's metadata in Restate keeps the fingerprint
	// of the handlers that were discovered.
	fingerprintKey = "weir-handlers"

	adminAnswerBytesMax = 4 << 20
)

// Registered is what a registration did.
type Registered string

// What a registration can come to.
const (
	RegisteredNew      Registered = "new"      // Restate did not know the URI
	RegisteredSame     Registered = "same"     // it knew it, with these handlers
	RegisteredReplaced Registered = "replaced" // it knew it with others, and now has these
	RegisteredByOther  Registered = "by other" // another process has registered others since, and was let be
)

// Registrar makes Restate know an endpoint: where it is and what handlers it has.
//
// Restate looks at a URI's handlers when it hears of the URI for the first time and,
// silently, not again: a new build at the old address would run with the options and
// without the handlers of the old one. So what was discovered is recorded beside the
// deployment as a fingerprint, and when ours is another one, it is discovered anew by
// force. That is done once in a process's life. After that a foreign fingerprint is
// another build behind the same URI, and two that force each other would never end.
//
// Not safe for use by several goroutines.
type Registrar struct {
	admin       string // URL of the admin API, without a slash at the end
	uri         string
	fingerprint string
	client      *http.Client
	settled     bool
}

// NewRegistrar returns a registrar for the endpoint that Restate reaches at uri.
func NewRegistrar(client *http.Client, admin, uri, fingerprint string) *Registrar {
	return &Registrar{admin: strings.TrimRight(admin, "/"), uri: uri, fingerprint: fingerprint, client: client}
}

type registration struct {
	URI      string            `json:"uri"`
	Force    bool              `json:"force"`
	Metadata map[string]string `json:"metadata"`
}

type deployment struct {
	ID       string            `json:"id"`
	Metadata map[string]string `json:"metadata"`
}

// Register may be called again and again; when all is well it changes nothing. The
// endpoint must be served already: Restate asks it for its handlers.
func (r *Registrar) Register(ctx context.Context) (Registered, error) {
	var known deployment
	status, err := r.post(ctx, false, &known)
	if err != nil {
		return "", err
	}
	if status == http.StatusCreated {
		r.settled = true
		return RegisteredNew, nil
	}
	if _, err := r.call(ctx, http.MethodGet, "/deployments/"+known.ID, nil, &known); err != nil {
		return "", err
	}
	switch {
	case known.Metadata[fingerprintKey] == r.fingerprint:
		r.settled = true
		return RegisteredSame, nil
	case r.settled:
		return RegisteredByOther, nil
	}
	if _, err := r.post(ctx, true, &known); err != nil {
		return "", err
	}
	r.settled = true
	return RegisteredReplaced, nil
}

func (r *Registrar) post(ctx context.Context, force bool, answer *deployment) (status int, err error) {
	return r.call(ctx, http.MethodPost, "/deployments", registration{
		URI: r.uri, Force: force, Metadata: map[string]string{fingerprintKey: r.fingerprint},
	}, answer)
}

// call makes one call of the admin API. Every answer but 2xx is an error.
func (r *Registrar) call(ctx context.Context, method, path string, in, out any) (status int, err error) {
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return 0, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, r.admin+path, &body)
	if err != nil {
		return 0, fmt.Errorf("call Restate's admin API: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	res, err := r.client.Do(req)
	if err != nil {
		return 0, fmt.Errorf("%w: Restate's admin API does not answer (is restate-server running? see --restate-admin): %w", controlplane.ErrUnavailable, err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, adminAnswerBytesMax))
	if err != nil {
		return 0, fmt.Errorf("%w: read the answer of Restate's admin API: %w", controlplane.ErrUnavailable, err)
	}
	if res.StatusCode/100 != 2 {
		return 0, fmt.Errorf("restate's admin API refused to register %s (can Restate reach it? see --handlers-url): %s: %.500s", r.uri, res.Status, text)
	}
	if err := json.Unmarshal(text, out); err != nil {
		return 0, fmt.Errorf("read the answer of Restate's admin API: %w", err)
	}
	return res.StatusCode, nil
}
