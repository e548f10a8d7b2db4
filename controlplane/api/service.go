package api

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"path"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/access"
	"github.com/weirhq/weir/controlplane/audit"
	"github.com/weirhq/weir/controlplane/cleanup"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/limits"
	"github.com/weirhq/weir/controlplane/tunings"
	"github.com/weirhq/weir/controlplane/watch"
	"github.com/weirhq/weir/shared/bounded"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
	"github.com/weirhq/weir/shared/workspaces"
)

const (
	// Timeouts of calls. A read waits for no other work. A change can wait for a running job. A run can wait for another
	// run before it starts.
	lookTimeout   = 10 * time.Second
	changeTimeout = time.Minute
	runTimeout    = 2 * time.Minute

	lagTimeout = 2 * time.Second // of the lag in a status, which is useful without it
)

// Cleanup is the schedule of the expiry cleanup. Errors wrap controlplane.ErrInvalid, controlplane.ErrUnavailable or
// the context's error. Implementations must be safe for concurrent use.
type Cleanup interface {
	Status(ctx context.Context) (cleanup.Status, error)
	RunNow(ctx context.Context, by controlplane.By) (cleanup.Run, error)
	Pause(ctx context.Context, by controlplane.By) (cleanup.Status, error)
	Resume(ctx context.Context, by controlplane.By) (cleanup.Status, error)
}

// Config has the dependencies and settings of the service. All fields are required except Previews, Partitions, Limits,
// Approvers, Console, RequireTokens, Subjects, AuthFailed, Refused, Loopback and AllowedHosts.
type Config struct {
	Cleanup     Cleanup
	Rollouts    Rollouts
	Retirements Retirements
	Previews    Previews                                              // nil: no previews
	Tuning      func(context.Context) ([]tunings.RegionTuning, error) // in force: of the fleet, then by region
	Tunings     tunings.Log                                           // all versions
	Tokens      Tokens
	Settings    Settings
	// Ready returns an error unless MySQL answers and has the required tables.
	Ready func(context.Context) error
	Lag   func(context.Context) (time.Duration, error) // how far the cleanup is behind
	// Partitions returns why the cleanup deletes rows in batches. If it is nil, that is unknown.
	Partitions func(context.Context) (cleanup.PartitionsProblem, error)
	Fleet      func(context.Context) (fleet.Fleet, error) // according to its nodes' heartbeats
	Health     func(context.Context) watch.HealthDocument // according to the watch
	Diagnose   func(context.Context) []watch.Check        // checks of the whole setup
	Audit      audit.Log
	Metrics    prometheus.Gatherer
	Log        *slog.Logger
	TopKeys    func(context.Context, limits.TopQuery) (limits.TopKeys, error)
	Held       func(context.Context, limits.TopQuery) (limits.HeldReport, error)
	Key        func(context.Context, limits.KeyQuery) (limits.KeyReport, error)
	Keys       func(context.Context, limits.KeysQuery) (limits.KeyPage, error)
	Usage      func(context.Context, limits.UsageQuery) (limits.Usage, error)
	// Limits estimates which requests an override would have denied, for keys of some workspaces.
	// If it is nil, there are no estimates.
	Limits func(context.Context, []limits.Change, *workspaces.Set) (limits.Estimate, error)

	// Approvers reports whose approvals no longer count. If it is nil, all approvals count.
	Approvers access.Approvers

	// Console returns the web console, which calls the service within this process; nil: no console. The console
	// authenticates people itself.
	Console func(service http.Handler) http.Handler

	// RequireTokens makes every call require a token with a sufficient role. Without it, every caller that reaches the
	// service can do everything, under any name.
	RequireTokens bool

	// Subjects are the roles of callers by the subject of their certificate, which the listener must have verified: its
	// URI, or else its common name. Such a caller needs no token. It is the actor of its changes, whatever token or actor
	// the call has. Subjects require RequireTokens; see ValidateSubjects.
	Subjects map[string]access.Role

	// AuthFailed is called for each call that is rejected because of its token; it can be nil.
	AuthFailed func(controlplane.AuthFailure)

	// Refused is called for each call that exceeds a bound; it can be nil.
	Refused func(bounded.Bound)

	// Loopback should be set if the service listens only on loopback. Requests for unknown hosts are then rejected, even
	// with RequireTokens, because /metrics and probes require no token, and a page of another site can let its host name
	// resolve to loopback.
	Loopback bool

	// AllowedHosts are further names by which requests can address the service, for example the name of a proxy on this
	// machine. Loopback addresses, localhost and the address of the connection are always allowed. With RequireTokens and
	// without Loopback every name is allowed.
	AllowedHosts []string
}

// service has the fields that all Connect services of the API share. Each service is a type that embeds it.
type service struct{ Config }

// controlService implements the RPCs about the fleet and its cleanup.
type controlService struct{ *service }

var _ controlv1connect.ControlServiceHandler = controlService{}

func (s controlService) Fleet(ctx context.Context,
	_ *connect.Request[controlv1.FleetRequest]) (*connect.Response[controlv1.FleetResponse], error) {
	fleet, err := s.Config.Fleet(ctx)
	return answered(fleetResponse(fleet), err)
}

func (s controlService) CleanupStatus(ctx context.Context,
	_ *connect.Request[controlv1.CleanupStatusRequest]) (*connect.Response[controlv1.CleanupStatusResponse], error) {
	status, err := s.Cleanup.Status(ctx)
	answer, err := s.withLag(ctx, status, err)
	return answered(&controlv1.CleanupStatusResponse{Status: answer}, err)
}

func (s controlService) CleanupRun(ctx context.Context,
	_ *connect.Request[controlv1.CleanupRunRequest]) (*connect.Response[controlv1.CleanupRunResponse], error) {
	run, err := s.Cleanup.RunNow(ctx, by(ctx))
	return answered(&controlv1.CleanupRunResponse{Run: runRecord(run)}, err)
}

func (s controlService) CleanupPause(ctx context.Context,
	_ *connect.Request[controlv1.CleanupPauseRequest]) (*connect.Response[controlv1.CleanupPauseResponse], error) {
	status, err := s.Cleanup.Pause(ctx, by(ctx))
	answer, err := s.withLag(ctx, status, err)
	return answered(&controlv1.CleanupPauseResponse{Status: answer}, err)
}

func (s controlService) CleanupResume(ctx context.Context,
	_ *connect.Request[controlv1.CleanupResumeRequest]) (*connect.Response[controlv1.CleanupResumeResponse], error) {
	status, err := s.Cleanup.Resume(ctx, by(ctx))
	answer, err := s.withLag(ctx, status, err)
	return answered(&controlv1.CleanupResumeResponse{Status: answer}, err)
}

// withLag adds the lag of the cleanup to its status, and the reason why it deletes rows in batches. If MySQL does not
// answer, the status lacks both but still has the schedule.
func (s controlService) withLag(ctx context.Context, status cleanup.Status,
	err error) (*controlv1.CleanupStatus, error) {
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, lagTimeout)
	defer cancel()
	answer := cleanupStatus(status)
	if lag, err := s.Lag(ctx); err == nil {
		answer.LagMs = new(lag.Milliseconds())
	}
	if s.Partitions != nil {
		if problem, err := s.Partitions(ctx); err == nil {
			answer.PartitionsProblem = valid(problem.String())
		}
	}
	return answer, nil
}

// answering sets the timeout of a call, the author of its change, and the code of its error.
func (s *service) answering() connect.UnaryInterceptorFunc {
	return func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (answer connect.AnyResponse, err error) {
			procedure := req.Spec().Procedure
			ctx, cancel := context.WithTimeout(ctx, cmp.Or(rules[procedure].timeout, lookTimeout))
			defer cancel()
			if msg, ok := req.Any().(operatorMessage); ok {
				var by controlplane.By
				by, err = byOf(ctx, msg)
				ctx = context.WithValue(ctx, byKey{}, by)
			}
			if err == nil {
				answer, err = next(ctx, req)
			}
			if err != nil {
				return nil, s.fail(ctx, path.Base(procedure), err)
			}
			return answer, nil
		}
	}
}

// answered returns the response of a handler, or the error.
func answered[M any](msg *M, err error) (*connect.Response[M], error) {
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(msg), nil
}

// each converts a list to messages.
func each[T, M any](list []T, message func(T) *M) (messages []*M) {
	for _, one := range list {
		messages = append(messages, message(one))
	}
	return messages
}

// fail adds a code to an error without a code.
func (s *service) fail(ctx context.Context, rpc string, err error) error {
	var coded *connect.Error
	switch {
	case errors.As(err, &coded):
		return err
	case errors.Is(err, controlplane.ErrInvalid):
		return connect.NewError(connect.CodeInvalidArgument, err)
	case errors.Is(err, controlplane.ErrConflict):
		return connect.NewError(connect.CodeFailedPrecondition, err)
	case errors.Is(err, controlplane.ErrChanged):
		return connect.NewError(connect.CodeAborted, err)
	case errors.Is(err, controlplane.ErrNotFound):
		return connect.NewError(connect.CodeNotFound, err)
	case errors.Is(err, controlplane.ErrUnavailable):
		return connect.NewError(connect.CodeUnavailable, err)
	case errors.Is(err, context.DeadlineExceeded):
		return connect.NewError(connect.CodeDeadlineExceeded, err)
	case errors.Is(err, context.Canceled):
		return connect.NewError(connect.CodeCanceled, err)
	}
	s.Log.ErrorContext(ctx, "call failed", "rpc", rpc, "error", err)
	return connect.NewError(connect.CodeInternal, err)
}
