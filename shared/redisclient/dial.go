package redisclient

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"
)

// dialer connects within ctx's deadline, including the TLS handshake; go-redis's own dialer ignores ctx during the
// handshake. All its errors are dial errors, so callers can be sure that nothing was sent.
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
			_ = conn.Close() // the server closes the connection as well
		}
		return nil, fmt.Errorf("dial %s: %w", addr, &HandshakeError{err})
	}
}

// welcomed waits for the server's first answer. In TLS 1.3 a client considers itself connected
// before the server has checked its certificate. Without welcomed, a refused certificate would look
// like the lost reply of a command.
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
	for n := 0; b[0] != '\n'; n++ { // +PONG, or an error that a password is needed: both are an answer
		if n == wordBytesMax {
			return errors.New("the server does not answer in Redis's protocol")
		}
		if _, err := conn.Read(b[:]); err != nil {
			return err
		}
	}
	return conn.SetDeadline(time.Time{})
}

const wordBytesMax = 1024

// HandshakeError is returned if the client or the server does not trust the other's certificate.
type HandshakeError struct{ err error }

func (e *HandshakeError) Error() string { return "TLS handshake: " + e.err.Error() }
func (e *HandshakeError) Unwrap() error { return e.err }
