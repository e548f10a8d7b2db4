package bounded

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// CallBytes is the memory that a call takes in addition to its body: its headers, its stack, its response, and the
// garbage that results from them.
const CallBytes = 24 << 10

// Route bounds the calls of a path.
type Route struct {
	// Bytes bounds the length of a body, both as sent and decompressed.
	Bytes int64

	// Check checks each message of a body before it is decoded, for example its number of items. If it is nil, nothing is
	// checked. contentType is the request's, in lower case.
	Check func(contentType string, message []byte) error
}

// Call is an HTTP call that passes the bounds. The zero Call is ready to use. Use it for a single call and in a single
// goroutine.
type Call struct {
	hold    Hold
	place   Place
	writer  http.ResponseWriter
	sending bool
	pooled  *[pooledBytes]byte
	source  source
}

// source is a body in memory.
type source struct{ bytes.Reader }

func (*source) Close() error { return nil }

const pooledBytes = 2 << 10

var pooled = sync.Pool{New: func() any { return new([pooledBytes]byte) }}

// Read reads r's whole body, decompresses it, checks it with route and stores it as r's body. Its bytes count for
// caller, which may be nil, until End. Callers must call End when the call has ended, in any case.
func (c *Call) Read(w http.ResponseWriter, r *http.Request, m *Memory, caller *Caller, route Route) ([]byte, error) {
	c.writer, c.hold.Caller, c.hold.Cutter = w, caller, c
	if r.ContentLength > route.Bytes {
		return nil, tooLong(route.Bytes)
	}
	ctx := r.Context()
	if err := m.Take(ctx, &c.hold, CallBytes+max(0, r.ContentLength)); err != nil {
		return nil, err
	}
	from := r.Body
	if r.ContentLength < 0 {
		from = http.MaxBytesReader(w, from, route.Bytes)
	}
	body, err := c.readAll(ctx, from, r.ContentLength, route.Bytes)
	if err != nil {
		return nil, c.explain(err)
	}
	if body, err = c.unpackAll(r, body, route); err != nil {
		return nil, err
	}
	c.hold.Work(CallBytes + int64(cap(body)))
	if err := c.place.For(ctx, len(body)); err != nil {
		return nil, err
	}
	c.source.Reset(body)
	r.Body, r.ContentLength = &c.source, int64(len(body))
	return body, nil
}

func tooLong(most int64) error { return refuse(BoundBody, "body is longer than %d bytes", most) }

// readAll reads a body of a known length, or of an unknown length, which is -1.
func (c *Call) readAll(ctx context.Context, r io.Reader, length, most int64) ([]byte, error) {
	if length >= 0 {
		var body []byte
		if length <= pooledBytes {
			c.pooled, _ = pooled.Get().(*[pooledBytes]byte)
			body = c.pooled[:length]
		} else {
			body = make([]byte, length)
		}
		_, err := io.ReadFull(r, body)
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return body, err
	}
	var body []byte
	for room := unpackedRoomMin; ; room *= 4 {
		room = min(room, int(most)+1)
		if err := c.hold.Grow(ctx, int64(room-cap(body))); err != nil {
			return nil, err
		}
		body = append(make([]byte, 0, room), body...)
		if ended, err := fill(r, &body); ended || err != nil {
			return body, err
		}
	}
}

// explain returns the error for a body that ends early: the caller's fault, or the server's.
func (c *Call) explain(err error) error {
	var long *http.MaxBytesError
	var refusal *Refusal
	switch {
	case errors.As(err, &refusal):
		return err
	case errors.As(err, &long):
		return tooLong(long.Limit)
	case c.hold.WasCut():
		return refuse(BoundTime, "body did not arrive in time: its memory is needed for other calls")
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return refuse(BoundTime, "body did not arrive in time")
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("body ended early: the caller went away: %w", err)
	}
	return fmt.Errorf("body cannot be read: %w", err)
}

// unpackAll decompresses a body, or each message in it, and checks them with route.
func (c *Call) unpackAll(r *http.Request, body []byte, route Route) ([]byte, error) {
	kind := kindOf(r)
	if encoding, framed := framing(kind, r.Header); framed {
		return c.unpackFramed(r.Context(), kind, body, encoding == "gzip", route)
	}
	if r.Header.Get("Content-Encoding") == "gzip" {
		var err error
		if body, err = Unpack(r.Context(), bytes.NewReader(body), route.Bytes, &c.place, c.hold.Grow); err != nil {
			return nil, err
		}
		r.Header.Del("Content-Encoding")
	}
	return body, route.check(kind, body)
}

// kindOf returns a request's Content-Type in lower case, because package mime, which the decoders use, ignores case
// too.
func kindOf(r *http.Request) string {
	return strings.TrimSpace(strings.ToLower(r.Header.Get("Content-Type")))
}

func (route Route) check(kind string, message []byte) error {
	if route.Check == nil {
		return nil
	}
	return route.Check(kind, message)
}

// framing reports whether each message of a body has a header, as in gRPC, and returns the encoding of compressed
// messages.
func framing(kind string, h http.Header) (encoding string, framed bool) {
	switch {
	case strings.HasPrefix(kind, "application/grpc"):
		return h.Get("Grpc-Encoding"), true
	case strings.HasPrefix(kind, "application/connect+"):
		return h.Get("Connect-Content-Encoding"), true
	}
	return "", false
}

// A message's header has a byte of flags and four bytes of its length.
const (
	headBytes  = 5
	flagPacked = 1
)

// unpackFramed decompresses the only message of a body. It returns an incomplete message unchanged, because the decoder
// returns a better error.
func (c *Call) unpackFramed(ctx context.Context, kind string, body []byte, gzip bool, route Route) ([]byte, error) {
	if len(body) < headBytes || int64(binary.BigEndian.Uint32(body[1:])) > int64(len(body)-headBytes) {
		return body, nil
	}
	head, message, rest := body[0], body[headBytes:], []byte(nil)
	n := binary.BigEndian.Uint32(body[1:])
	if message, rest = message[:n], message[n:]; len(rest) > 0 {
		return nil, refuse(BoundItems, "body holds more than one message")
	}
	if head&flagPacked == 0 {
		return body, route.check(kind, message)
	}
	if !gzip {
		return body, nil
	}
	message, err := Unpack(ctx, bytes.NewReader(message), route.Bytes, &c.place, c.hold.Grow)
	if err != nil {
		return nil, err
	}
	unpacked := binary.BigEndian.AppendUint32(append(make([]byte, 0, headBytes+len(message)), head&^flagPacked),
		uint32(len(message)))
	return append(unpacked, message...), route.check(kind, message)
}

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// Cut implements Cutter.
func (c *Call) Cut() {
	control := http.NewResponseController(c.writer)
	if c.sending {
		_ = control.SetWriteDeadline(past)
		return
	}
	_ = control.SetReadDeadline(past)
}

// Context returns ctx with the call's place among the long bodies, if it has a place.
func (c *Call) Context(ctx context.Context) context.Context { return c.place.With(ctx) }

// Worked gives back what the work on a body has taken in addition to memory.
func (c *Call) Worked() { c.place.Give() }

// Sends must be called before a response is sent. It returns ok = false if so many calls wait for their callers that no
// further response can be sent. A call that was rejected has then got a bare status, which every caller can take
// immediately. Any other call must be aborted, and aborted is true.
func (c *Call) Sends(a *Answer) (ok, aborted bool) {
	refused := !c.hold.holds()
	c.hold.Work(math.MaxInt64)
	c.sending = true // Cut is not called between Work and Send
	if c.hold.Send(CallBytes + int64(a.Len())) {
		return true, false
	}
	if refused {
		a.Bare()
	}
	return false, !refused
}

// End gives everything back. Callers must not use the body that Read returned after that.
func (c *Call) End() {
	c.place.Give()
	c.hold.Give()
	if c.pooled != nil {
		pooled.Put(c.pooled)
		c.pooled = nil
	}
}
