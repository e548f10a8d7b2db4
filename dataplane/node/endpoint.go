package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/weirhq/weir/shared/bounded"
)

// Bounds of a connection in time and bytes. A call takes a few hundred bytes and a few microseconds; a client that
// reaches these bounds is broken or hostile.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second // header and body together
	writeTimeout      = 20 * time.Second
	idleTimeout       = 2 * time.Minute
	headerBytesMax    = 8 << 10

	streamsMax   = 100       // calls on one HTTP/2 connection at a time
	aheadBytes   = 256 << 10 // of all calls of a connection, before they are read
	frameBytes   = 64 << 10
	pingAfter    = 30 * time.Second // silence after which an HTTP/2 peer must prove that it lives
	pingTimeout  = 10 * time.Second
	writeStalled = 10 * time.Second
)

// endpoint is a port and its HTTP server.
type endpoint struct {
	name, address string // the name is the option's name
	bounds        *bounds
	most          int // connections
	server        *http.Server
	listener      net.Listener
}

func (e *endpoint) listen(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", e.address)
	if err != nil {
		return fmt.Errorf("%s: %w", e.name, err)
	}
	e.listener = e.bounds.listen(listener, e.most)
	return nil
}

func (e *endpoint) serve() error {
	serve := e.server.Serve
	if e.server.TLSConfig != nil {
		serve = func(l net.Listener) error { return e.server.ServeTLS(l, "", "") }
	}
	if err := serve(e.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("%s: serve on %s: %w", e.name, e.listener.Addr(), err)
	}
	return nil
}

// shutdown takes no more calls and waits until no call is worked on, or ctx is done. Then it cuts the
// remaining calls. It returns an error if a call was cut.
func (e *endpoint) shutdown(ctx context.Context, g *gate) error {
	gone := make(chan struct{})
	leaving, leave := context.WithCancel(ctx)
	go func() { _ = e.server.Shutdown(leaving); close(gone) }()
	defer func() { e.close(); leave(); <-gone }()
	return finished(ctx, gone, g)
}

// finished waits until all connections have closed, or until no call is in progress and every caller that reads at all
// has read its response.
func finished(ctx context.Context, gone <-chan struct{}, g *gate) error {
	linger := time.NewTimer(lingerMax)
	defer linger.Stop()
	select {
	case <-gone:
		return nil
	case <-linger.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := g.idle(ctx); err != nil {
		return err
	}
	linger.Reset(lingerMax)
	select {
	case <-gone:
	case <-linger.C:
	case <-ctx.Done():
	}
	return nil
}

// close closes the port and every connection immediately.
func (e *endpoint) close() {
	if e.listener != nil {
		_ = e.listener.Close()
	}
	_ = e.server.Close()
}

func callServer(base context.Context, handler http.Handler, logger *slog.Logger) *http.Server {
	s := newServer(handler, logger)
	s.ReadTimeout = readTimeout
	s.WriteTimeout = writeTimeout
	s.BaseContext = func(net.Listener) context.Context { return base }
	return s
}

// adminServer has no deadline for responses, because a profile can take minutes. adminMux sets a
// deadline for all other responses.
func adminServer(handler http.Handler, logger *slog.Logger) *http.Server {
	s := newServer(handler, logger)
	s.ReadTimeout = readHeaderTimeout
	return s
}

func newServer(handler http.Handler, logger *slog.Logger) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true) // with TLS; without it:
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           handler,
		Protocols:         protocols,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    headerBytesMax,
		ConnContext:       bounded.ConnContext,
		ErrorLog:          bounded.ErrorLog(logger),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          streamsMax,
			MaxReadFrameSize:              frameBytes,
			MaxReceiveBufferPerStream:     streamWindowBytes,
			MaxReceiveBufferPerConnection: aheadBytes,
			SendPingTimeout:               pingAfter,
			PingTimeout:                   pingTimeout,
			WriteByteTimeout:              writeStalled,
		},
	}
}
