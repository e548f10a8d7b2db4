package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// fingerprintKey is the key of a deployment's metadata in Restate that has the fingerprint of the discovered handlers.
const fingerprintKey = "weir-handlers"

// Registered is the result of a registration.
type Registered string

// Results of a registration.
const (
	RegisteredNew      Registered = "new"      // Restate did not have the URI
	RegisteredSame     Registered = "same"     // Restate had the URI with these handlers
	RegisteredReplaced Registered = "replaced" // Restate had the URI with other handlers, and now has these
	RegisteredPromoted Registered = "promoted" // Restate had the URI with these handlers, but another build had the calls
	RegisteredByOther  Registered = "by other" // another process has registered other handlers since, which stay

	// RegisteredTakenOver means that new calls went to an address that has not answered for takeOverAfter, and now come to
	// this endpoint.
	RegisteredTakenOver Registered = "taken over"
)

const (
	// takeOverAfter is how long another address must not answer before a registrar takes over its calls. It must exceed
	// the time of a restart.
	takeOverAfter = 20 * time.Second

	// discoverTimeout bounds Restate's attempt to reach another address, in a round of keepTimeout.
	discoverTimeout = 5 * time.Second
)

// Registrar registers an endpoint with Restate: its address and its handlers.
//
// Restate discovers the handlers of a URI only when the URI is registered for the first time. So a new build at an old
// address would run with the options of the old build, and without its own new handlers. To prevent that, the registrar
// stores a fingerprint of the handlers with the deployment. If its own fingerprint differs, it forces another
// discovery, but only once in the life of a process. After that a different fingerprint means that another build has
// the same URI, and two builds that force each other would never end.
//
// Restate sends new calls to the newest deployment. If that is another address, for example of a second weir-control,
// and Restate cannot reach it any more, all calls wait for it. So a registrar takes over the calls from an address that
// has not answered for takeOverAfter. It never does so from an address that answers, so two live processes with
// addresses of their own do not take the calls from each other.
//
// There is one exception, because Restate does not promote a deployment that is registered again. A process that starts
// gets the new calls although another build, at another address, has them: the process may be the earlier build, to
// which an operator goes back. It gets them once in its life.
//
// A Registrar must not be used concurrently.
type Registrar struct {
	admin       *Admin
	uri         string
	fingerprint string
	settled     bool

	after  time.Duration // takeOverAfter, except in tests
	silent string        // URI of the newest deployment, if it is another and does not answer
	since  time.Time     // when it was first seen not to answer
	from   string        // the last URI that was taken over
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
	Revision int64  `json:"revision"` // calls go to the highest revision of a name
}

// Register registers the endpoint. It can be called repeatedly, and changes nothing if all is well. The endpoint must
// already be served, because Restate discovers its handlers.
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
		return r.serveAgain(ctx, known)
	case r.settled:
		return RegisteredByOther, nil
	}
	if _, err := r.post(ctx, true, &known); err != nil {
		return "", err
	}
	r.settled = true
	return RegisteredReplaced, nil
}

// serveAgain checks that Restate sends calls to this endpoint, which is registered. When the process starts, it gets
// the calls of another build.
func (r *Registrar) serveAgain(ctx context.Context, ours deployment) (Registered, error) {
	newest, err := r.newestBeside(ctx, ours)
	if err != nil {
		return "", err
	}
	if !r.settled && newest.URI != "" && newest.Metadata[fingerprintKey] != r.fingerprint {
		if _, err := r.post(ctx, true, &deployment{}); err != nil {
			return "", err
		}
		r.settled = true
		return RegisteredPromoted, nil
	}
	r.settled = true
	return r.takeOver(ctx, ours, newest)
}

// takeOver takes over the calls from the newest deployment if that has another address, which has not answered for long
// enough.
func (r *Registrar) takeOver(ctx context.Context, ours, newest deployment) (Registered, error) {
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
		return RegisteredTakenOver, nil // calls that began there have another build, whose steps may differ
	}
	to := map[string]string{"uri": r.uri}
	if _, err := r.call(ctx, http.MethodPatch, "/deployments/"+newest.ID, to, nil); err != nil {
		return RegisteredTakenOver, fmt.Errorf("continue the calls that had begun at %s: %w", newest.URI, err)
	}
	return RegisteredTakenOver, nil
}

// newestBeside returns the deployment at another address that has the calls of any of our services; its URI is empty if
// our deployment has them all. A deployment of another build comes first: the same build, at a third address, can still
// have the calls of a service that the other build lacks.
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
	var beside deployment
	for _, s := range ours.Services {
		d := newest[s.Name]
		if d.URI == "" || d.URI == ours.URI {
			continue
		}
		if beside = d; d.Metadata[fingerprintKey] != r.fingerprint {
			break
		}
	}
	return beside, nil
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
