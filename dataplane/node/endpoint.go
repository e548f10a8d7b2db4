package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// What a caller may take of a connection, in time and in bytes. A call is a few
// hundred bytes and a few microseconds; whoever needs these bounds is broken, or
// no friend.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second // header and body together
	writeTimeout      = 20 * time.Second
	idleTimeout       = 2 * time.Minute
	headerBytesMax    = 16 << 10

	streamsMax   = 1000 // concurrent calls on one HTTP/2 connection
	frameBytes   = 64 << 10
	pingAfter    = 30 * time.Second // silence after which an HTTP/2 peer must prove that it lives
	pingTimeout  = 10 * time.Second
	writeStalled = 10 * time.Second
)

// endpoint is one port and the HTTP server on it.
type endpoint struct {
	name, address string
	server        *http.Server
	listener      net.Listener
}

func (e *endpoint) listen(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", e.address)
	if err != nil {
		return fmt.Errorf("listen for %s: %w", e.name, err)
	}
	e.listener = listener
	return nil
}

func (e *endpoint) serve() error {
	serve := e.server.Serve
	if e.server.TLSConfig != nil {
		serve = func(l net.Listener) error { return e.server.ServeTLS(l, "", "") }
	}
	if err := serve(e.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s on %s: %w", e.name, e.listener.Addr(), err)
	}
	return nil
}

// close drops the port and every connection, whatever they are doing.
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

// adminServer has no deadline for answers: a profile takes as long as it was asked to.
func adminServer(handler http.Handler, logger *slog.Logger) *http.Server {
	return newServer(handler, logger)
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
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: streamsMax,
			MaxReadFrameSize:     frameBytes,
			SendPingTimeout:      pingAfter,
			PingTimeout:          pingTimeout,
			WriteByteTimeout:     writeStalled,
		},
	}
}
