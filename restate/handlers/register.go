package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
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

	// RegisteredTakenOver means that new calls went to an address that has not answered for takeOverAfter, and now come
	// here.
	RegisteredTakenOver Registered = "taken over"
)

const (
	// takeOverAfter is how long another address must not answer before a registrar takes its calls over: longer than
	// a restart.
	takeOverAfter = 20 * time.Second

	// discoverTimeout bounds Restate's attempt to reach another address, in a round of keepTimeout.
	discoverTimeout = 5 * time.Second
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
// Restate sends new calls to the deployment that was registered last. If that is another
// address, such as that of a second weir-control, and Restate does not reach it any more,
// all calls wait for it. So a registrar takes the calls over from an address that has not
// answered for takeOverAfter, and never from one that answers: two that live, at addresses
// of their own, do not take turns.
//
// Not safe for use by several goroutines.
type Registrar struct {
	admin       *Admin
	uri         string
	fingerprint string
	settled     bool

	after  time.Duration // takeOverAfter, except in tests
	silent string        // URI of the newest deployment, if that is another and does not answer
	since  time.Time     // when it was first seen not to
	from   string        // the URI that was taken over from last
}

// NewRegistrar returns a registrar for the endpoint that Restate reaches at uri.
func NewRegistrar(admin *Admin, uri, fingerprint string) *Registrar {
	return &Registrar{admin: admin, uri: uri, fingerprint: fingerprint, after: takeOverAfter}
}

type registration struct {
	URI      string            `json:"uri"`
	Force    bool              `json:"force"`
	DryRun   bool              `json:"dry_run,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

type deployment struct {
	ID       string              `json:"id"`
	URI      string              `json:"uri"`
	Metadata map[string]string   `json:"metadata,omitempty"`
	Services []deploymentService `json:"services"`
}

type deploymentService struct {
	Name     string `json:"name"`
	Revision int64  `json:"revision"` // the highest of a name has the calls
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
		return r.takeOver(ctx, known)
	case r.settled:
		return RegisteredByOther, nil
	}
	if _, err := r.post(ctx, true, &known); err != nil {
		return "", err
	}
	r.settled = true
	return RegisteredReplaced, nil
}

// takeOver checks that calls come to ours, and takes them over from an address that has not answered for long enough.
func (r *Registrar) takeOver(ctx context.Context, ours deployment) (Registered, error) {
	newest, err := r.newestBeside(ctx, ours)
	if err != nil {
		return "", err
	}
	if newest.URI != r.silent {
		r.silent, r.since = "", time.Time{}
	}
	if newest.URI == "" {
		return RegisteredSame, nil
	}
	if serves, err := r.serves(ctx, newest.URI, ours); serves || err != nil {
		r.silent = ""
		return RegisteredSame, err
	}
	if r.silent == "" {
		r.silent, r.since = newest.URI, time.Now()
	}
	if time.Since(r.since) < r.after {
		return RegisteredSame, nil
	}
	if _, err := r.post(ctx, true, &deployment{}); err != nil {
		return "", err
	}
	r.silent, r.from = "", newest.URI
	if newest.Metadata[fingerprintKey] != r.fingerprint {
		return RegisteredTakenOver, nil // what began there is of another build, whose steps may differ
	}
	to := map[string]string{"uri": r.uri}
	if _, err := r.call(ctx, http.MethodPatch, "/deployments/"+newest.ID, to, nil); err != nil {
		return RegisteredTakenOver, fmt.Errorf("continue the calls that had begun at %s: %w", newest.URI, err)
	}
	return RegisteredTakenOver, nil
}

// newestBeside returns the deployment at another address that has the calls of one of our services; its URI is empty
// if ours has them all.
func (r *Registrar) newestBeside(ctx context.Context, ours deployment) (deployment, error) {
	var all struct {
		Deployments []deployment `json:"deployments"`
	}
	if _, err := r.call(ctx, http.MethodGet, "/deployments", nil, &all); err != nil {
		return deployment{}, err
	}
	newest, revisions := map[string]deployment{}, map[string]int64{}
	for _, d := range all.Deployments {
		for _, s := range d.Services {
			if s.Revision > revisions[s.Name] {
				newest[s.Name], revisions[s.Name] = d, s.Revision
			}
		}
	}
	for _, s := range ours.Services {
		if d := newest[s.Name]; d.URI != "" && d.URI != ours.URI {
			return d, nil
		}
	}
	return deployment{}, nil
}

// serves reports whether Restate reaches our services at another address. An error means that Restate did not try.
func (r *Registrar) serves(ctx context.Context, uri string, ours deployment) (bool, error) {
	limited, cancel := context.WithTimeout(ctx, discoverTimeout)
	defer cancel()
	var found deployment
	_, err := r.call(limited, http.MethodPost, "/deployments", registration{URI: uri, Force: true, DryRun: true}, &found)
	var refused *adminRefusal
	switch {
	case errors.As(err, &refused) && refused.discovery(), limited.Err() != nil && ctx.Err() == nil:
		return false, nil
	case err != nil:
		return false, err
	}
	for _, s := range ours.Services {
		if !slices.ContainsFunc(found.Services, func(f deploymentService) bool { return f.Name == s.Name }) {
			return false, nil
		}
	}
	return true, nil
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
