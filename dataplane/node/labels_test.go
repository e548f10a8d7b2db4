package node

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"sync"
	"testing"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/internal/fair"
	"github.com/weirhq/weir/shared/bounded"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
)

// labels notes the callers of calls about reservations and leases.
type labels struct {
	*dataplane.Limiter
	mu   sync.Mutex
	seen []fair.Caller
}

func (l *labels) note(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = append(l.seen, fair.In(ctx))
}

// taken returns the callers of the calls since it was called last.
func (l *labels) taken() []fair.Caller {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := l.seen
	l.seen = nil
	return seen
}

func (l *labels) Reserve(ctx context.Context, r dataplane.ReserveRequest) dataplane.Reserved {
	l.note(ctx)
	return l.Limiter.Reserve(ctx, r)
}

func (l *labels) Cancel(ctx context.Context, id string) (dataplane.Settlement, error) {
	l.note(ctx)
	return l.Limiter.Cancel(ctx, id)
}

func (l *labels) AcquireToken(ctx context.Context, r dataplane.ConcurrencyRequest, id string,
	wait bool) (string, dataplane.ConcurrencyDecision) {
	l.note(ctx)
	return l.Limiter.AcquireToken(ctx, r, id, wait)
}

// A node labels each call about reservations and leases, on every wire and in streams: by its token, or by the address
// that it comes from.
func TestCallsAreLabelledByTheirCaller(t *testing.T) {
	for _, tokens := range [][]string{{""}, {"one", "two"}} {
		limiter := limiterOf(t, dataplane.Config{})
		l := &labels{Limiter: limiter}
		adjust := func(*Config) {}
		if len(tokens) > 1 {
			adjust = withTokens(t, tokens...)
		}
		h := start(t, l, adjust)
		by := make(map[string]fair.Caller)
		for _, d := range doors {
			c := d.open(t, h)
			for _, token := range tokens {
				reserve := connect.NewRequest(&weirv1.ReserveRequest{Requests: oneOf(d.name + token)})
				reserve.Header().Set("Authorization", "Bearer "+token)
				cancel := connect.NewRequest(&weirv1.CancelRequest{Id: "none"})
				cancel.Header().Set("Authorization", "Bearer "+token)
				_, _ = c.Reserve(t.Context(), reserve)
				_, _ = c.Cancel(t.Context(), cancel)
				_, _ = c.Acquire(t.Context(), as(token, slotOf(d.name, "", 1)))
				want := 3
				if d.name == "gRPC" || d.name == "gRPC on its own port" {
					stream := c.LimitStream(t.Context())
					stream.RequestHeader().Set("Authorization", "Bearer "+token)
					send(t, stream, streamReserve(1, &weirv1.ReserveRequest{Requests: oneOf(d.name + token)}))
					receive(t, stream)
					shut(stream)
					want++
				}
				seen := l.taken()
				if len(seen) != want {
					t.Errorf("%s: %d calls, want %d", d.name, len(seen), want)
				}
				for _, caller := range seen {
					if first, ok := by[token]; !caller.Labelled() || ok && first != caller {
						t.Errorf("%s: caller %x of token %q, was %x", d.name, caller, token, first)
					}
					by[token] = caller
				}
			}
		}
		if len(tokens) > 1 && by["one"] == by["two"] {
			t.Error("two tokens are one caller")
		}
	}
}

// The holder of a certificate stays the same caller after a renewal, and differs from other holders.
func TestCertificatesNameTheirCallers(t *testing.T) {
	ctx := t.Context()
	of := func(name, dns string, serial byte) fair.Caller {
		h := holder{caller: bounded.Named("10.0.0.1/32"), shown: &x509.Certificate{Raw: []byte{serial},
			RawIssuer: []byte("ca"), RawSubject: []byte(name), DNSNames: []string{dns}, Subject: pkix.Name{CommonName: name}}}
		return fair.In(h.label(ctx, weirv1connect.RateLimitServiceReserveProcedure))
	}
	if of("a", "a.example", 1) != of("a", "a.example", 2) || of("a", "a.example", 1) == of("b", "a.example", 1) ||
		of("", "a.example", 1) == of("", "b.example", 1) {
		t.Error("certificates are told apart wrongly")
	}
	by := holder{caller: bounded.Named("10.0.0.1/32")}
	if fair.In(by.label(ctx, weirv1connect.RateLimitServiceReserveProcedure)) == 0 ||
		by.label(ctx, weirv1connect.RateLimitServiceLimitProcedure) != ctx {
		t.Error("a call of Limit has a label, or one of Reserve has none")
	}
}
