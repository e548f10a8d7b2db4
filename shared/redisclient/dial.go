package redisclient

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"
)

// dialer connects within ctx's deadline, the TLS handshake included (go-redis's own
// does not look at ctx there). Its errors are those of a dial, whatever went wrong:
// so that it is known that nothing was sent.
func dialer(timeout time.Duration,
	config *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	plain := &net.Dialer{Timeout: timeout}
	if config == nil {
		return plain.DialContext
	}
	secure := &tls.Dialer{NetDialer: plain, Config: config}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := secure.DialContext(ctx, network, addr)
		if err == nil {
			err = welcomed(ctx, conn, timeout)
		}
		var op *net.OpError
		switch {
		case err == nil:
			return conn, nil
		case errors.As(err, &op) && op.Op == "dial":
			return nil, err
		case conn != nil:
			_ = conn.Close() // the server has hung up, or is about to
		}
		return nil, fmt.Errorf("dial %s: %w", addr, &HandshakeError{err})
	}
}

// welcomed waits for the server's first word. In TLS 1.3 a client believes itself
// connected before the server has looked at its certificate; without this, a refusal
// would only show as the lost reply of a command.
func welcomed(ctx context.Context, conn net.Conn, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	if earlier, ok := ctx.Deadline(); ok && earlier.Before(deadline) {
		deadline = earlier
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	var b [1]byte
	for n := 0; b[0] != '\n'; n++ { // +PONG, or that it wants a password first: either will do
		if n == wordBytesMax {
			return errors.New("the server does not speak Redis's protocol")
		}
		if _, err := conn.Read(b[:]); err != nil {
			return err
		}
	}
	return conn.SetDeadline(time.Time{})
}

const wordBytesMax = 1024

// HandshakeError is the error of a connection that one of both sides does not trust.
type HandshakeError struct{ err error }

func (e *HandshakeError) Error() string { return "TLS handshake: " + e.err.Error() }
func (e *HandshakeError) Unwrap() error { return e.err }
