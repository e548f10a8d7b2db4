package routes

import (
	"context"
	"errors"
	"net/http"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/bounded"
)

// verdict is the data of limit. Passed and the names are multiLimit's.
type verdict struct {
	Success   bool   `json:"success"`
	Limit     int64  `json:"limit"`
	Remaining int64  `json:"remaining"`
	Reset     int64  `json:"reset"` // Unix ms: the end of the fixed window
	Override  string `json:"overrideId,omitempty"`
	Duration  int64  `json:"duration,omitempty"` // ms: see otherWindow
}

type check struct {
	Namespace  string `json:"namespace"`
	Identifier string `json:"identifier"`
	Passed     bool   `json:"passed"`
	Limit      int64  `json:"limit"`
	Remaining  int64  `json:"remaining"`
	Reset      int64  `json:"reset"`
	Override   string `json:"overrideId,omitempty"`
	Duration   int64  `json:"duration,omitempty"`
}

type checks struct {
	Passed bool    `json:"passed"`
	Limits []check `json:"limits"`
}

func (s *Service) limit(ctx context.Context, body []byte) (answer, *Fault) {
	var r reader
	request := r.readCheck(body)
	if fault := r.fault(); fault != nil {
		return answer{}, fault
	}
	request.Workspace = s.Workspace
	d := s.Limiter.Allow(ctx, request)
	if d.Err != nil {
		return answer{}, refusal(d.Err)
	}
	return answer{Data: verdict{d.Allowed, d.Limit, d.Remaining, d.ResetAt.UnixMilli(),
		s.overrideID(request.Namespace, d.Override), otherWindow(&request, &d)}}, nil
}

// multiLimit decides all checks together: if one does not pass, none is counted. Each result shows whether the check
// would have passed together with the checks before it.
func (s *Service) multiLimit(ctx context.Context, body []byte) (answer, *Fault) {
	var r reader
	requests := r.readMulti(body)
	if fault := r.fault(); fault != nil {
		return answer{}, fault
	}
	for i := range requests {
		requests[i].Workspace = s.Workspace
	}
	place := bounded.PlaceOf(ctx)
	place.Leave()
	batch := s.Limiter.AppendAllowMany(ctx, nil, requests)
	place.Return(ctx)
	if batch.Err != nil {
		return answer{}, refusal(batch.Err)
	}
	all := checks{Passed: batch.Allowed, Limits: make([]check, len(requests))}
	for i, d := range batch.Decisions {
		q := &requests[i]
		all.Limits[i] = check{q.Namespace, r.sent[i], d.Allowed, d.Limit, d.Remaining, d.ResetAt.UnixMilli(),
			s.overrideID(q.Namespace, d.Override), otherWindow(q, &d)}
	}
	return answer{Data: all}, nil
}

// otherWindow returns the window that an override has set, if it differs from the requested window. Existing clients do
// not have this field, so it is left out otherwise.
func otherWindow(asked *dataplane.Request, d *dataplane.Decision) int64 {
	if d.Duration == asked.Duration {
		return 0
	}
	return d.Duration.Milliseconds()
}

// refusal converts the limiter's error about a request that was found valid here.
func refusal(err error) *Fault {
	if errors.Is(err, dataplane.ErrInvalid) {
		return NewFault(http.StatusBadRequest, "%v", err)
	}
	f := NewFault(http.StatusInternalServerError, "internal error, see this node's log")
	f.cause = err
	return f
}
