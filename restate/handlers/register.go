package handlers

import (
	"context"
	"fmt"
	"net/http"
)

// fingerprintKey is where a deployment's metadata in Restate keeps the fingerprint of
// the handlers that were discovered.
const fingerprintKey = "weir-handlers"

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
	admin       *Admin
	uri         string
	fingerprint string
	settled     bool
}

// NewRegistrar returns a registrar for the endpoint that Restate reaches at uri.
func NewRegistrar(admin *Admin, uri, fingerprint string) *Registrar {
	return &Registrar{admin: admin, uri: uri, fingerprint: fingerprint}
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

func (r *Registrar) call(ctx context.Context, method, path string, in, out any) (status int, err error) {
	return r.admin.call(ctx, fmt.Sprintf("to register %s (can Restate reach it? see --handlers-url)", r.uri), method,
		path, in, out)
}
