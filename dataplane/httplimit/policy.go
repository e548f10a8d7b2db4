package httplimit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/weirhq/weir/dataplane"
)

// Limiter makes the decisions. *dataplane.Limiter is a Limiter. Implementations must be safe for concurrent use.
type Limiter interface {
	Allow(ctx context.Context, request dataplane.Request) dataplane.Decision
	AppendAllowMany(ctx context.Context, decisions []dataplane.Decision, requests []dataplane.Request) dataplane.Batch
}

// Call is the view of a request that a policy's functions get, for any protocol. They must not use it after they have
// returned.
type Call interface {
	Context() context.Context
	Header() http.Header
	RemoteAddr() string // of the connection's other end, "host:port"
	Path() string       // of the URL; with RPC the procedure, which is the same
}

// Quota is how much cost may pass in any window of a duration.
type Quota struct {
	Limit    int64         // 0 (blocks) to window.LimitMax
	Duration time.Duration // 1 s to 366 days, whole milliseconds
}

// Policy is a limit of requests. Its functions run on every request, concurrently, and must not block.
type Policy struct {
	// Name is the policy's name in answers to callers: 1 to 64 characters of printable ASCII, unique within a Guard. For
	// example, "per-user".
	Name string

	// Workspace and Namespace are the names under which its keys are counted. An empty Namespace means Name.
	Workspace, Namespace string

	// Key returns the identifier to count, or false. Required. An identifier longer than 255 bytes is counted under its
	// hash, so a long name is no way around a limit.
	Key func(Call) (identifier string, found bool)

	// Quota applies to all callers, unless QuotaFor is set. If QuotaFor returns false, the policy does not apply to the
	// call. For example, QuotaFor can return the quota of the caller's plan.
	Quota    Quota
	QuotaFor func(Call, string) (quota Quota, limited bool)

	// Cost returns how much a call spends: 0 (nothing) or more. If it is nil, each call costs 1. A
	// cost above window.LimitMax, which a caller may have requested, counts as window.LimitMax.
	Cost func(Call) int64

	// Open lets a call pass if this policy cannot be applied to it, because there is no key, or because QuotaFor or Cost
	// returned a value outside its bounds. Otherwise such a call is denied, with status 400 if there is no key and 500 in
	// the other cases. A caller can omit the header that is the Key, or send it twice. So set Open only if another policy
	// of the Guard, such as a policy by address, limits such callers.
	Open bool
}

// Legacy is a dialect of the X-RateLimit fields. Choose the dialect that your clients read.
type Legacy int

// The dialects differ in X-RateLimit-Reset. All show the policy that matters most: of a denied call the policy with the
// longest wait, of another call the policy with least left.
const (
	LegacyNone  Legacy = iota // no such fields
	LegacyEpoch               // Reset is Unix time in seconds
	LegacyDelta               // Reset is seconds from now
)

// Config is the configuration of a Guard.
type Config struct {
	Limiter  Limiter
	Policies []Policy // 1 to PoliciesMax

	// Quiet omits RateLimit-Policy and RateLimit from answers to calls that pass. Set it to send fewer bytes.
	Quiet bool

	// Legacy adds the X-RateLimit fields to all answers with RateLimit.
	Legacy Legacy

	// Jitter spreads the times that denied callers get: each time is up to Jitter later, so that callers do not return all
	// at once. 0 to an hour; 0 is the default. For example, set 2 s if thousands of clients retry at exactly the time in
	// Retry-After.
	Jitter time.Duration

	// Denied answers a denied call instead of the built-in problem. The fields are set already, and Denied must call
	// WriteHeader and write the body. nil means the built-in answer. It applies to net/http only.
	Denied func(http.ResponseWriter, *http.Request, *Outcome)

	// Logger receives a line for each call to which a faulty policy could not be applied. With nil nothing is logged.
	Logger *slog.Logger

	// Clock returns the time from which the fields count; nil is time.Now. It must be the limiter's clock.
	Clock func() time.Time
}

// PoliciesMax is how many policies a Guard may have.
const PoliciesMax = 8

const (
	nameBytesMax = 64
	jitterMax    = time.Hour
)

func (c *Config) validate() error {
	if c.Limiter == nil {
		return errors.New("httplimit: Config.Limiter is nil")
	}
	if n := len(c.Policies); n < 1 || n > PoliciesMax {
		return fmt.Errorf("httplimit: Config.Policies has %d items (1 to %d)", n, PoliciesMax)
	}
	if c.Jitter < 0 || c.Jitter > jitterMax {
		return fmt.Errorf("httplimit: Config.Jitter is %v (0 to %v)", c.Jitter, jitterMax)
	}
	if c.Legacy < LegacyNone || c.Legacy > LegacyDelta {
		return fmt.Errorf("httplimit: Config.Legacy is %d (LegacyNone, LegacyEpoch or LegacyDelta)", c.Legacy)
	}
	names := make(map[string]bool)
	for i := range c.Policies {
		p := &c.Policies[i]
		if err := p.validate(); err != nil {
			return fmt.Errorf("httplimit: policy %d (%q): %w", i, p.Name, err)
		}
		if names[p.Name] {
			return fmt.Errorf("httplimit: policy %d (%q): the name is another policy's", i, p.Name)
		}
		names[p.Name] = true
	}
	return nil
}

func unprintable(r rune) bool { return r < ' ' || r > '~' }

func (p *Policy) validate() error {
	if n := len(p.Name); n < 1 || n > nameBytesMax || strings.ContainsFunc(p.Name, unprintable) {
		return fmt.Errorf("the name must be 1 to %d characters of printable ASCII", nameBytesMax)
	}
	if p.Key == nil {
		return errors.New("the Key is nil: set a function that identifies callers, such as Header or ClientIP")
	}
	probe := dataplane.Request{Workspace: p.Workspace, Namespace: p.Namespace, Identifier: "x", Limit: p.Quota.Limit,
		Duration: p.Quota.Duration}
	if p.QuotaFor != nil {
		probe.Limit, probe.Duration = 0, time.Second
	}
	return probe.Validate()
}
