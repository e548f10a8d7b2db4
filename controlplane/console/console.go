package console

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"log/slog"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/controlplane/access"
	"github.com/weirhq/weir/controlplane/api"
	"github.com/weirhq/weir/controlplane/console/pulse"
	"github.com/weirhq/weir/controlplane/console/sessions"
	"github.com/weirhq/weir/shared/bounded"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// Config is the configuration of a console. All fields are required except TrustedProxies and
// StillValid.
type Config struct {
	Service http.Handler // the operators' API, called in process
	Log     *slog.Logger
	Version string // of the build, shown at the foot of each page

	// TrustedProxies are the addresses of proxies whose X-Forwarded-For and X-Forwarded-Proto count.
	TrustedProxies []netip.Prefix

	// StillValid returns an error if a page's connection would not be accepted now, for example
	// because the authority of the browser's certificate was removed. The page's stream then ends.
	// If it is nil, connections stay valid.
	StillValid func(*tls.ConnectionState) error
}

// Console serves everything below /console/.
type Console struct {
	Config
	now      func() time.Time
	backend  backend
	sessions *sessions.Sessions
	backoff  *sessions.Backoff // of sign-ins
	pulse    *pulse.Pulse
	streams  *bounded.Slots // a slot for each open stream; a caller has at most three quarters of them
	live     atomic.Int64   // open streams
	over     chan struct{}  // closed when Run has ended
	once     once           // forms whose response shows a secret, which must not be sent twice
	forgery  string         // token against forged requests if there are no sessions
	mux      *http.ServeMux
}

// Each type has the pages of an area. All of them share the Console.
type (
	fleetPages   struct{ *Console }
	jobPages     struct{ *Console }
	keyPages     struct{ *Console }
	limitPages   struct{ *Console }
	rolloutPages struct{ *Console }
	signInPages  struct{ *Console }
	tokenPages   struct{ *Console }
)

const (
	formBytesMax = 64 << 10
	streamsMax   = 64
	pageTimeout  = 15 * time.Second
)

// itself is the identity with which the pulse reads the fleet.
var itself = access.Identity{Name: "console", Role: access.RoleViewer}

// New returns a console that can serve immediately. Live figures are updated only while Run runs.
func New(c Config) *Console {
	con := &Console{Config: c, now: time.Now, backend: newBackend(c.Service),
		streams: bounded.NewSlots(bounded.Streams, streamsMax), over: make(chan struct{}), forgery: rand.Text(),
		mux: http.NewServeMux()}
	clock := func() time.Time { return con.now() }
	con.sessions, con.backoff = sessions.New(clock), sessions.NewBackoff(clock)
	con.pulse = pulse.New(clock, func(ctx context.Context) (*controlv1.FleetResponse, error) {
		return con.backend.fleet(api.WithIdentity(ctx, itself))
	})
	con.routes()
	return con
}

// Run updates live figures until ctx is done. Then it ends all streams, so that the server can drain. Run must be
// called only once.
func (c *Console) Run(ctx context.Context) {
	defer close(c.over)
	c.pulse.Run(ctx)
}

// routes registers all pages. A page of open requires no session, a page of look requires a session, and a page of
// change also requires the token of a form of this console.
func (c *Console) routes() {
	open := func(pattern string, h http.HandlerFunc) { c.mux.HandleFunc(pattern, h) }
	look := func(pattern string, h page) { c.mux.HandleFunc("GET "+pattern, c.signedIn(h)) }
	change := func(pattern string, h page) { c.mux.HandleFunc("POST "+pattern, c.ours(c.signedIn(c.meant(h)))) }

	fleet, jobs, keys, limits := fleetPages{c}, jobPages{c}, keyPages{c}, limitPages{c}
	rollouts, doors, tokens := rolloutPages{c}, signInPages{c}, tokenPages{c}

	open("GET /console/static/", c.asset)
	open("GET /console/sign-in", doors.signInPage)
	open("POST /console/sign-in", c.ours(doors.signIn))
	change("/console/sign-out", doors.signOut)

	look("/console/{$}", c.ofFleet(fleet.fleetPage))
	look("/console/regions/{region}", c.ofFleet(fleet.regionPage))
	look("/console/events", c.events)

	look("/console/rollouts", c.ofFleet(rollouts.rolloutsPage))
	look("/console/rollouts/new", c.ofFleet(rollouts.newRolloutPage))
	change("/console/rollouts/new", c.ofFleet(rollouts.startRollout))
	change("/console/rollouts/preview", c.ofFleet(rollouts.previewRollout))
	look("/console/rollouts/limits", c.ofFleet(rollouts.newLimitsPage))
	change("/console/rollouts/limits", c.ofFleet(rollouts.changeLimits))
	look("/console/rollouts/at/{id}", c.ofFleet(rollouts.rolloutPage))
	change("/console/rollouts/at/{id}", c.ofFleet(rollouts.operateRollout))

	look("/console/jobs", c.ofFleet(jobs.jobsPage))
	change("/console/jobs/cleanup", c.ofFleet(jobs.operateCleanup))
	change("/console/jobs/retirement", c.ofFleet(jobs.operateRetirement))

	look("/console/health", c.ofFleet(fleet.healthPage))
	look("/console/audit", c.ofFleet(fleet.auditPage))

	look("/console/tokens", c.ofFleet(tokens.tokensPage))
	change("/console/tokens", c.ofFleet(tokens.changeToken))

	look("/console/usage", c.usagePage)

	look("/console/keys", keys.keysPage)
	change("/console/keys", keys.resetKey)

	look("/console/limits", limits.limitsPage)
	look("/console/limits/namespace", limits.namespacePage)
	change("/console/rollouts/stages", c.ofFleet(rollouts.addStage))
	change("/console/limits/namespace", limits.changeNamespace)
	change("/console/limits/override", limits.changeOverride)

	look("/console/", c.notFound)
}

// ServeHTTP implements http.Handler.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		if p := recover(); p != nil && p != http.ErrAbortHandler { //nolint:errorlint // as net/http compares it
			c.Log.ErrorContext(r.Context(), "console panicked", "path", r.URL.Path, "panic", p)
			http.Error(w, "Internal error: see the log of weir-control.", http.StatusInternalServerError)
		}
	}()
	secure(w.Header())
	r.Body = http.MaxBytesReader(w, r.Body, formBytesMax)
	c.mux.ServeHTTP(w, r)
}
