package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/internal/leases"
	"github.com/weirhq/weir/shared/workspaces"
)

// Limiter makes the decisions. *dataplane.Limiter implements it.
//
// Implementations must be safe for concurrent use and obey ctx's deadline. The result's Err must report only requests
// that are invalid. Implementations must not keep slices that they get.
type Limiter interface {
	Allow(ctx context.Context, request dataplane.Request) dataplane.Decision
	Peek(ctx context.Context, request dataplane.Request) dataplane.Decision
	AppendAllowMany(ctx context.Context, decisions []dataplane.Decision, requests []dataplane.Request) dataplane.Batch
	Refund(request dataplane.Request) (refunded int64, err error)
	Reserve(ctx context.Context, request dataplane.ReserveRequest) dataplane.Reserved
	Settle(ctx context.Context, id string, costs ...int64) (dataplane.Settlement, error)
	Spend(ctx context.Context, id string, costs ...int64) (dataplane.Settlement, error)
	Cancel(ctx context.Context, id string) (dataplane.Settlement, error)
	Extend(ctx context.Context, id string, ttl time.Duration) (dataplane.Settlement, error)
	AcquireToken(ctx context.Context, r dataplane.ConcurrencyRequest, id string,
		wait bool) (token string, d dataplane.ConcurrencyDecision)
	RenewTokens(ctx context.Context, ttl time.Duration, tokens ...string) []error
	ReleaseTokens(ctx context.Context, tokens ...string) []error
	ExplainConcurrency(r dataplane.ConcurrencyRequest) (dataplane.ConcurrencyExplanation, error)
	Explain(request dataplane.Request) (dataplane.Explanation, error)
	TopKeys(query dataplane.TopQuery) (dataplane.TopKeys, error)
}

// Restrict returns all, or with a scope a Limiter that denies calls about other workspaces.
func Restrict(all Limiter, to *Scope) Limiter {
	if to == nil {
		return all
	}
	return scoped{all, to}
}

// scoped is a Limiter restricted to a token's scope. It spells out every method of Limiter instead
// of embedding it, so that a new method does not compile until someone has decided how a scope
// applies to it.
//
// A reservation is found by its ID, independent of its keys. So scoped keeps the IDs of tokens with different
// workspaces apart: a token finds only reservations made by tokens with the same workspaces.
type scoped struct {
	all   Limiter
	scope *Scope
}

var _ Limiter = scoped{}

func (s scoped) Allow(ctx context.Context, r dataplane.Request) dataplane.Decision {
	if !s.scope.Holds(r.Workspace) {
		return dataplane.Decision{Err: ErrScope}
	}
	return s.all.Allow(ctx, r)
}

func (s scoped) Peek(ctx context.Context, r dataplane.Request) dataplane.Decision {
	if !s.scope.Holds(r.Workspace) {
		return dataplane.Decision{Err: ErrScope}
	}
	return s.all.Peek(ctx, r)
}

func (s scoped) AppendAllowMany(ctx context.Context, decisions []dataplane.Decision,
	requests []dataplane.Request) dataplane.Batch {
	if !s.holdsAll(requests) {
		return dataplane.Batch{Err: ErrScope}
	}
	return s.all.AppendAllowMany(ctx, decisions, requests)
}

func (s scoped) holdsAll(requests []dataplane.Request) bool {
	return !slices.ContainsFunc(requests, func(r dataplane.Request) bool { return !s.scope.Holds(r.Workspace) })
}

func (s scoped) Refund(r dataplane.Request) (int64, error) {
	if !s.scope.Holds(r.Workspace) {
		return 0, ErrScope
	}
	return s.all.Refund(r)
}

func (s scoped) Reserve(ctx context.Context, r dataplane.ReserveRequest) dataplane.Reserved {
	if !s.holdsAll(r.Requests) {
		return dataplane.Reserved{Err: ErrScope}
	}
	id := r.ID
	if id == "" {
		id, r.Drawn = rand.Text(), true
	}
	r.ID = s.inner(id)
	reserved := s.all.Reserve(ctx, r)
	reserved.ID = id
	return reserved
}

func (s scoped) Settle(ctx context.Context, id string, costs ...int64) (dataplane.Settlement, error) {
	settlement, err := s.all.Settle(ctx, s.inner(id), costs...)
	settlement.ID = id
	return settlement, err
}

func (s scoped) Spend(ctx context.Context, id string, costs ...int64) (dataplane.Settlement, error) {
	settlement, err := s.all.Spend(ctx, s.inner(id), costs...)
	settlement.ID = id
	return settlement, err
}

func (s scoped) Cancel(ctx context.Context, id string) (dataplane.Settlement, error) {
	settlement, err := s.all.Cancel(ctx, s.inner(id))
	settlement.ID = id
	return settlement, err
}

func (s scoped) Extend(ctx context.Context, id string, ttl time.Duration) (dataplane.Settlement, error) {
	settlement, err := s.all.Extend(ctx, s.inner(id), ttl)
	settlement.ID = id
	return settlement, err
}

// inner returns the ID that the region uses for the reservation that a token of this scope calls
// id.
func (s scoped) inner(id string) string {
	if s.scope.workspaces.All() {
		return id
	}
	sum := sha256.Sum256([]byte(s.scope.key + id))
	return "scoped-" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// scopeKey returns a text of fixed length that is the same for the same workspaces and different for different
// workspaces.
func scopeKey(of *workspaces.Set) string {
	sum := sha256.New()
	var length [8]byte
	for _, name := range of.Names() {
		binary.LittleEndian.PutUint64(length[:], uint64(len(name)))
		sum.Write(length[:])
		sum.Write([]byte(name))
	}
	return string(sum.Sum(nil))
}

func (s scoped) AcquireToken(ctx context.Context, r dataplane.ConcurrencyRequest, id string,
	wait bool) (token string, d dataplane.ConcurrencyDecision) {
	if !s.scope.Holds(r.Workspace) {
		return "", dataplane.ConcurrencyDecision{Err: ErrScope}
	}
	return s.all.AcquireToken(ctx, r, id, wait)
}

func (s scoped) RenewTokens(ctx context.Context, ttl time.Duration, tokens ...string) []error {
	if !s.holdsLeases(tokens) {
		return slices.Repeat([]error{ErrScope}, len(tokens))
	}
	return s.all.RenewTokens(ctx, ttl, tokens...)
}

func (s scoped) ReleaseTokens(ctx context.Context, tokens ...string) []error {
	if !s.holdsLeases(tokens) {
		return slices.Repeat([]error{ErrScope}, len(tokens))
	}
	return s.all.ReleaseTokens(ctx, tokens...)
}

// holdsLeases reports whether all leases belong to the scope's workspaces. It skips text that is not a lease, because
// the limiter returns an error for it.
func (s scoped) holdsLeases(tokens []string) bool {
	return !slices.ContainsFunc(tokens, func(token string) bool {
		lease, err := leases.Parse(token)
		return err == nil && !s.scope.Holds(lease.Key.Workspace)
	})
}

func (s scoped) ExplainConcurrency(r dataplane.ConcurrencyRequest) (dataplane.ConcurrencyExplanation, error) {
	if !s.scope.Holds(r.Workspace) {
		return dataplane.ConcurrencyExplanation{}, ErrScope
	}
	return s.all.ExplainConcurrency(r)
}

func (s scoped) Explain(r dataplane.Request) (dataplane.Explanation, error) {
	if !s.scope.Holds(r.Workspace) {
		return dataplane.Explanation{}, ErrScope
	}
	return s.all.Explain(r)
}

// TopKeys of all workspaces returns only keys of the scope's workspaces.
func (s scoped) TopKeys(q dataplane.TopQuery) (dataplane.TopKeys, error) {
	if q.Workspace != "" && !s.scope.Holds(q.Workspace) {
		return dataplane.TopKeys{}, ErrScope
	}
	q.Visible = s.scope.Holds
	return s.all.TopKeys(q)
}
