package routes

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"

	"github.com/weirhq/weir/shared/window"
)

// Override is the limit of the identifiers that a pattern matches in a namespace; see store.OverrideRow.
type Override struct {
	Pattern    string // 1 to 255 bytes: a network, or text in which each of at most 8 '*' matches any bytes
	Limit      int64  // 0 (blocks) to window.LimitMax
	DurationMs int64  // 0 keeps the request's
}

// ErrPatternsAlike is a pattern with several '*' that nodes would leave out, since window.PatternsAlikeMax others of
// the namespace begin alike.
var ErrPatternsAlike = fmt.Errorf("begins like others with more than one '*' (at most %d begin alike)",
	window.PatternsAlikeMax)

// Overrides stores overrides for all nodes that share the store. The store determines when nodes apply them.
// Implementations must be safe for concurrent use and obey ctx's deadline. They must compare and sort patterns as
// bytes.
type Overrides interface {
	// Set stores an override, and replaces an earlier override with the same pattern. For a new pattern that nodes would
	// leave out it returns an error that wraps ErrPatternsAlike.
	Set(ctx context.Context, workspace, namespace string, o Override) error
	// Get returns the override with exactly this pattern.
	Get(ctx context.Context, workspace, namespace, pattern string) (o Override, found bool, err error)
	// List returns the first most > 0 patterns that are greater than after.
	List(ctx context.Context, workspace, namespace, after string, most int) ([]Override, error)
	// Delete returns false if there was none of this pattern.
	Delete(ctx context.Context, workspace, namespace, pattern string) (found bool, err error)
}

// override is the wire's.
type override struct {
	ID         string `json:"overrideId"`
	Identifier string `json:"identifier"`
	Limit      int64  `json:"limit"`
	DurationMs int64  `json:"duration"`
}

func (s *Service) override(namespace string, o Override) override {
	return override{s.overrideID(namespace, o.Pattern), o.Pattern, o.Limit, o.DurationMs}
}

// overrideID names an override: the same pattern has the same name on every node, today
// and tomorrow, without anybody keeping it. "" for no pattern.
func (s *Service) overrideID(namespace, pattern string) string {
	if pattern == "" {
		return ""
	}
	h := sha256.New()
	for _, part := range []string{s.Workspace, namespace, pattern} {
		sum := sha256.Sum256([]byte(part)) // all of the same length, for any content
		h.Write(sum[:])
	}
	return "ovr_" + hex.EncodeToString(h.Sum(nil)[:12])
}

// failed returns a store that did not answer.
func failed(err error) *Fault {
	f := NewFault(http.StatusServiceUnavailable, "the store of overrides does not answer")
	if errors.Is(err, ErrUnaudited) { // which no repetition mends
		f = NewFault(http.StatusForbidden, "%v", ErrUnaudited)
	}
	f.cause = err
	return f
}

func (s *Service) setOverride(ctx context.Context, body []byte) (answer, *Fault) {
	var r reader
	namespace, o := r.readSet(body)
	if fault := r.fault(); fault != nil {
		return answer{}, fault
	}
	switch err := s.Overrides.Set(ctx, s.Workspace, namespace, o); {
	case errors.Is(err, ErrPatternsAlike):
		r.wrong("body.identifier", "%v", ErrPatternsAlike)
		return answer{}, r.fault()
	case err != nil:
		return answer{}, failed(err)
	}
	return answer{Data: struct {
		ID string `json:"overrideId"`
	}{s.overrideID(namespace, o.Pattern)}}, nil
}

func (s *Service) getOverride(ctx context.Context, body []byte) (answer, *Fault) {
	var r reader
	namespace, pattern := r.readName(body)
	if fault := r.fault(); fault != nil {
		return answer{}, fault
	}
	o, found, err := s.Overrides.Get(ctx, s.Workspace, namespace, pattern)
	switch {
	case err != nil:
		return answer{}, failed(err)
	case !found:
		return answer{}, notFound("there is no override of this identifier")
	}
	return answer{Data: s.override(namespace, o)}, nil
}

func (s *Service) deleteOverride(ctx context.Context, body []byte) (answer, *Fault) {
	var r reader
	namespace, pattern := r.readName(body)
	if fault := r.fault(); fault != nil {
		return answer{}, fault
	}
	found, err := s.Overrides.Delete(ctx, s.Workspace, namespace, pattern)
	switch {
	case err != nil:
		return answer{}, failed(err)
	case !found:
		return answer{}, notFound("there is no override of this identifier")
	}
	return answer{Data: struct{}{}}, nil
}

func (s *Service) listOverrides(ctx context.Context, body []byte) (answer, *Fault) {
	var r reader
	namespace, after, most := r.readList(body)
	if fault := r.fault(); fault != nil {
		return answer{}, fault
	}
	found, err := s.Overrides.List(ctx, s.Workspace, namespace, after, int(most)+1)
	if err != nil {
		return answer{}, failed(err)
	}
	page := &pagination{HasMore: len(found) > int(most)}
	if page.HasMore {
		found = found[:most]
		page.Cursor = writeCursor(found[most-1].Pattern)
	}
	list := make([]override, len(found))
	for i, o := range found {
		list[i] = s.override(namespace, o)
	}
	return answer{Data: list, Pagination: page}, nil
}

// A cursor is the last pattern of a page. Pages therefore neither skip nor repeat patterns that stay while others are
// added and deleted.
func writeCursor(pattern string) string { return base64.RawURLEncoding.EncodeToString([]byte(pattern)) }

func readCursor(cursor string) (pattern string, ok bool) {
	text, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	return string(text), err == nil && len(text) >= 1 && len(text) <= window.IdentifierBytesMax
}
