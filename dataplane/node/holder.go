package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/node/access"
	"github.com/weirhq/weir/dataplane/node/rls"
	"github.com/weirhq/weir/shared/bounded"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
	"github.com/weirhq/weir/shared/servertls"
)

// holder is the caller of a call. It determines whose share of each bound the call uses, and which actions the call can
// perform.
type holder struct {
	caller *bounded.Caller // of the token if tokens are required, otherwise of the client's address
	scope  *access.Scope
	shown  *x509.Certificate // of the client, if it has shown one and tokens are not required
	until  time.Time         // when the token or certificate expires; zero: never
}

// keeps has the procedures whose calls take room in the node or wait for the origin, so that callers have shares. All
// other calls need no label.
var keeps = map[string]bool{
	weirv1connect.RateLimitServiceReserveProcedure: true,
	weirv1connect.RateLimitServiceSettleProcedure:  true,
	weirv1connect.RateLimitServiceCancelProcedure:  true,
	weirv1connect.RateLimitServiceExtendProcedure:  true,
	weirv1connect.RateLimitServiceAcquireProcedure: true,
	weirv1connect.RateLimitServiceRenewProcedure:   true,
	weirv1connect.RateLimitServiceReleaseProcedure: true,

	streamProcedure:      true,
	rls.ReserveProcedure: true,
	rls.CommitProcedure:  true,
}

// label returns the context of a call with the holder's label: see dataplane.WithCaller.
func (h *holder) label(ctx context.Context, procedure string) context.Context {
	switch {
	case !keeps[procedure]:
		return ctx
	case h.shown != nil:
		return dataplane.WithCaller(ctx, nameOf(h.shown))
	}
	return dataplane.WithCaller(ctx, h.caller.Name())
}

// nameOf names the holder of a certificate. The name stays the same when the certificate is renewed.
func nameOf(c *x509.Certificate) string {
	return fmt.Sprintf("certificate %q %q %q %q %q", c.RawIssuer, c.RawSubject, c.DNSNames, c.URIs, c.EmailAddresses)
}

// credentialsOf holds the credentials of a call.
type credentialsOf struct {
	procedure     string
	authorization string
	tls           *tls.ConnectionState // nil without TLS
	address       *bounded.Caller
}

// judge returns the holder of a call, or an error if the call is not allowed. Call it for each
// call, and again for open streams when version has changed.
func (g *gate) judge(c *credentialsOf) (holder, error) {
	h := holder{caller: c.address}
	if g.tls != nil {
		if err := g.tls.StillValid(c.tls, time.Now()); err != nil {
			return h, connect.NewError(connect.CodeUnavailable, err)
		}
		h.until = g.tls.ValidUntil(c.tls)
		if c.tls != nil && len(c.tls.VerifiedChains) > 0 {
			h.shown = c.tls.VerifiedChains[0][0]
		}
	}
	if g.tokens == nil {
		return h, nil
	}
	shown, err := g.tokens.Admit(c.authorization)
	if err != nil {
		return h, err
	}
	h.caller, h.scope, h.shown = shown.Caller, shown.Scope, nil
	if ends := shown.Expires; !ends.IsZero() && (h.until.IsZero() || ends.Before(h.until)) {
		h.until = ends
	}
	return h, check(h.scope, g.needs, c.procedure)
}

// version returns a value that changes when judge may return something else for the same
// credentials.
func (g *gate) version() (v [2]int64) {
	if g.tls != nil {
		v[0] = g.tls.Version()
	}
	if g.tokens != nil {
		v[1] = g.tokens.Version()
	}
	return v
}

// credentialsOfHTTP returns the credentials of a request. Its path is the procedure.
func credentialsOfHTTP(r *http.Request) credentialsOf {
	return credentialsOf{procedure: r.URL.Path, authorization: r.Header.Get("Authorization"), tls: r.TLS,
		address: bounded.CallerOf(r.Context())}
}

// admit judges a request. If the connection's certificate is no longer valid, the connection ends
// with the answer, so that the client connects again and shows its current certificate.
func (g *gate) admit(w http.ResponseWriter, r *http.Request) (holder, error) {
	c := credentialsOfHTTP(r)
	h, err := g.judge(&c)
	if errors.Is(err, servertls.ErrExpired) || errors.Is(err, servertls.ErrAuthority) {
		w.Header().Set("Connection", "close")
	}
	return h, err
}

// credentialsOfRPC returns the credentials of a call on the port for plain gRPC.
func (g *gate) credentialsOfRPC(ctx context.Context, procedure string) credentialsOf {
	c := credentialsOf{procedure: procedure, address: connOf(ctx).Caller()}
	if g.tls != nil {
		if p, ok := peer.FromContext(ctx); ok {
			if secured, ok := p.AuthInfo.(credentials.TLSInfo); ok {
				c.tls = &secured.State
			}
		}
	}
	if g.tokens != nil {
		if values := metadata.ValueFromIncomingContext(ctx, "authorization"); len(values) > 0 {
			c.authorization = values[0]
		}
	}
	return c
}

// admitRPC judges a call on the port for plain gRPC, as admit does for a request.
func (g *gate) admitRPC(ctx context.Context, procedure string) (holder, error) {
	c := g.credentialsOfRPC(ctx, procedure)
	h, err := g.judge(&c)
	if errors.Is(err, servertls.ErrExpired) || errors.Is(err, servertls.ErrAuthority) {
		connOf(ctx).Drop()
	}
	return h, err
}

// standing is an open stream. Its credentials may become invalid while it is open.
type standing struct {
	credentialsOf
	holder holder                        // until is guarded by gate.open; the other fields do not change
	judged bool                          // judged at least once since it was opened; guarded by gate.open
	scope  *atomic.Pointer[access.Scope] // the current scope
	over   chan error                    // has room for one error: the reason why the stream ends
}

// stand registers an open stream, so that it is judged again until leave is called.
func (g *gate) stand(c credentialsOf, h holder) *standing {
	s := &standing{credentialsOf: c, holder: h, scope: new(atomic.Pointer[access.Scope]), over: make(chan error, 1)}
	s.scope.Store(h.scope)
	g.open.Lock()
	defer g.open.Unlock()
	if g.standing == nil {
		g.standing = make(map[*standing]struct{})
	}
	g.standing[s] = struct{}{}
	return s
}

func (g *gate) leave(s *standing) {
	g.open.Lock()
	defer g.open.Unlock()
	delete(g.standing, s)
}

// judgeAgain ends the open streams whose credentials are no longer valid. Call it at least twice a
// second, so that a stream ends less than a second after its token was removed from the file.
func (g *gate) judgeAgain(now time.Time) {
	g.open.Lock()
	defer g.open.Unlock()
	version := g.version()
	changed := version != g.judged
	g.judged = version
	for s := range g.standing {
		if s.judged && !changed && (s.holder.until.IsZero() || now.Before(s.holder.until)) {
			continue
		}
		s.judged = true
		h, err := g.judge(&s.credentialsOf)
		if err != nil {
			delete(g.standing, s)
			s.over <- err
			continue
		}
		s.holder.until = h.until
		s.scope.Store(h.scope)
	}
}
