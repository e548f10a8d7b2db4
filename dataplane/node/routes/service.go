package routes

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"

	"github.com/weirhq/weir/dataplane"
)

// Prefix is the path that all routes begin with.
const Prefix = "/v2/ratelimit."

// Paths are the routes' by their names.
var Paths = map[string]string{
	"limit":          Prefix + "limit",
	"multiLimit":     Prefix + "multiLimit",
	"setOverride":    Prefix + "setOverride",
	"getOverride":    Prefix + "getOverride",
	"listOverrides":  Prefix + "listOverrides",
	"deleteOverride": Prefix + "deleteOverride",
}

// Limiter makes the decisions. *dataplane.Limiter implements it.
type Limiter interface {
	Allow(ctx context.Context, request dataplane.Request) dataplane.Decision
	AppendAllowMany(ctx context.Context, decisions []dataplane.Decision, requests []dataplane.Request) dataplane.Batch
}

// Service serves the routes. All callers' keys are in one workspace. The fields must not change once it serves.
type Service struct {
	Limiter   Limiter
	Overrides Overrides // nil: their routes return 403
	Workspace string
	Logger    *slog.Logger
}

// Bounds of a body. The longest names, every byte of them escaped as \u00xx, make 4.4 KB
// a request.
const (
	bodyBytesMax      = 16 << 10
	multiBodyBytesMax = 512 << 10
)

// handle serves a route. It returns data for the envelope, or a fault.
type handle func(s *Service, ctx context.Context, body []byte) (answer, *Fault)

type route struct {
	handle    handle
	bytesMax  int64
	overrides bool // it needs Overrides, which a node may not have
}

var handles = map[string]route{
	Paths["limit"]:          {(*Service).limit, bodyBytesMax, false},
	Paths["multiLimit"]:     {(*Service).multiLimit, multiBodyBytesMax, false},
	Paths["setOverride"]:    {(*Service).setOverride, bodyBytesMax, true},
	Paths["getOverride"]:    {(*Service).getOverride, bodyBytesMax, true},
	Paths["listOverrides"]:  {(*Service).listOverrides, bodyBytesMax, true},
	Paths["deleteOverride"]: {(*Service).deleteOverride, bodyBytesMax, true},
}

func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	route, known := handles[r.URL.Path]
	if !known {
		Refuse(w, notFound("there is no such route"))
		return
	}
	body, fault := read(w, r, route.bytesMax)
	if fault != nil {
		Refuse(w, fault)
		return
	}
	if route.overrides && s.Overrides == nil {
		Refuse(w, NewFault(http.StatusForbidden,
			"this node does not change overrides: start it with v2-overrides, or use weirctl"))
		return
	}
	answer, fault := route.handle(s, withActor(r), body)
	if fault != nil {
		if fault.cause != nil {
			s.Logger.ErrorContext(r.Context(), "route failed", "path", r.URL.Path, "error", fault.cause)
		}
		Refuse(w, fault)
		return
	}
	answer.Meta.RequestID = requestID()
	write(w, http.StatusOK, "application/json", answer)
}

// BytesMax returns how long the body of a call by a path may be; 0 for paths that are no route's.
func BytesMax(path string) int64 { return handles[path].bytesMax }

// read takes a body of JSON, whole.
func read(w http.ResponseWriter, r *http.Request, bytesMax int64) ([]byte, *Fault) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return nil, NewFault(http.StatusMethodNotAllowed, "method must be POST")
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, NewFault(http.StatusUnsupportedMediaType, "Content-Type must be application/json")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bytesMax))
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &tooLong):
		return nil, NewFault(http.StatusRequestEntityTooLarge, "the body is longer than %d bytes", bytesMax)
	case err != nil:
		return nil, NewFault(http.StatusBadRequest, "the body ended early")
	}
	return body, nil
}
