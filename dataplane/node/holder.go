package node

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/weirhq/weir/shared/bounded"
	"github.com/weirhq/weir/shared/servertls"
)

// holder is who makes a call: whose share of each bound it takes, and where it may act.
type holder struct {
	caller *bounded.Caller // of the token, where tokens are required, or else of the client's address
	scope  *scope
	until  time.Time // when its token or its certificate ends by itself; zero: never
}

// credentialsOf is what a call was made with.
type credentialsOf struct {
	procedure     string
	authorization string
	tls           *tls.ConnectionState // nil without TLS
	address       *bounded.Caller
}

// judge reports who makes a call, or why it may not be made. It is asked for each call, and for open streams again when
// its answer may have changed.
func (g *gate) judge(c *credentialsOf) (holder, error) {
	h := holder{caller: c.address}
	if g.tls != nil {
		if err := g.tls.StillValid(c.tls, time.Now()); err != nil {
			return h, connect.NewError(connect.CodeUnavailable, err)
		}
		h.until = g.tls.ValidUntil(c.tls)
	}
	if g.tokens == nil {
		return h, nil
	}
	shown, err := g.tokens.admit(c.authorization)
	if err != nil {
		return h, err
	}
	h.caller, h.scope = shown.caller, shown.scope
	if ends := shown.expires; !ends.IsZero() && (h.until.IsZero() || ends.Before(h.until)) {
		h.until = ends
	}
	return h, h.scope.check(g.needs, c.procedure)
}

// version is another one when judge's answers may have changed.
func (g *gate) version() (v [2]int64) {
	if g.tls != nil {
		v[0] = g.tls.Version()
	}
	if g.tokens != nil {
		v[1] = g.tokens.known.Load().version
	}
	return v
}

// credentialsOfHTTP are those of a request. The procedure is its path.
func credentialsOfHTTP(r *http.Request) credentialsOf {
	return credentialsOf{procedure: r.URL.Path, authorization: r.Header.Get("Authorization"), tls: r.TLS,
		address: bounded.CallerOf(r.Context())}
}

// admit is judge for a request. Where the certificate of its connection is no longer valid, the connection ends with
// the answer, so that the next call of a client that has a new certificate shows that.
func (g *gate) admit(w http.ResponseWriter, r *http.Request) (holder, error) {
	c := credentialsOfHTTP(r)
	h, err := g.judge(&c)
	if errors.Is(err, servertls.ErrExpired) || errors.Is(err, servertls.ErrAuthority) {
		w.Header().Set("Connection", "close")
	}
	return h, err
}

// credentialsOfRPC are those of a call on the port for gRPC.
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

// admitRPC is admit for calls on the port for gRPC.
func (g *gate) admitRPC(ctx context.Context, procedure string) (holder, error) {
	c := g.credentialsOfRPC(ctx, procedure)
	h, err := g.judge(&c)
	if errors.Is(err, servertls.ErrExpired) || errors.Is(err, servertls.ErrAuthority) {
		connOf(ctx).Drop()
	}
	return h, err
}

// standing is a stream that is open. What it was let in with may be taken back meanwhile.
type standing struct {
	credentialsOf
	holder holder                 // its until is guarded by gate.open, the rest is as of the beginning
	judged bool                   // since it is among those that are judged again; guarded by gate.open
	scope  *atomic.Pointer[scope] // in force
	over   chan error             // of one: why the stream ends
}

// stand has a stream judged again until leave is called.
func (g *gate) stand(c credentialsOf, h holder) *standing {
	s := &standing{credentialsOf: c, holder: h, scope: new(atomic.Pointer[scope]), over: make(chan error, 1)}
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

// judgeAgain ends the streams that would not be let in now. Call it at least twice a second: a stream then goes on for
// less than a second after its token was taken out of the file.
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
