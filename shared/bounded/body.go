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

// CallBytes is what a call holds beside its body: its headers, its stack, its answer, and the garbage that
// collecting them leaves.
const CallBytes = 24 << 10

// Route bounds what is called by one path.
type Route struct {
	// Bytes is how long a body may be, as it comes and as it unpacks.
	Bytes int64

	// Check looks at each message of a body before anything decodes it: at how many items it
	// holds. Nil: there is nothing to look at. contentType is the request's, in lower case.
	Check func(contentType string, message []byte) error
}

// Call is a call by HTTP on its way through the bounds. The zero Call is ready; use it for one
// call and by one goroutine.
type Call struct {
	hold    Hold
	place   Place
	writer  http.ResponseWriter
	sending bool
	pooled  *[pooledBytes]byte
	source  source
}

// source is a body that is in memory.
type source struct{ bytes.Reader }

func (*source) Close() error { return nil }

const pooledBytes = 2 << 10

var pooled = sync.Pool{New: func() any { return new([pooledBytes]byte) }}

// Read reads r's body whole, unpacks it, has route look at it and leaves it as r's body. Its bytes
// are the caller's, who may be nil, until End; call that when the call has ended, in any case.
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

// readAll reads a body of a known length, or of an unknown one, which is -1.
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

// explain says whose fault it is that a body ends early.
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

// unpackAll unpacks a body, or each message in it, and has route look at them.
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

// kindOf is a request's Content-Type as package mime reads it for those who decode the body: in any case.
func kindOf(r *http.Request) string {
	return strings.TrimSpace(strings.ToLower(r.Header.Get("Content-Type")))
}

func (route Route) check(kind string, message []byte) error {
	if route.Check == nil {
		return nil
	}
	return route.Check(kind, message)
}

// framing tells whether a body's messages have a head each, as gRPC's have, and how those are
// packed that are.
func framing(kind string, h http.Header) (encoding string, framed bool) {
	switch {
	case strings.HasPrefix(kind, "application/grpc"):
		return h.Get("Grpc-Encoding"), true
	case strings.HasPrefix(kind, "application/connect+"):
		return h.Get("Connect-Content-Encoding"), true
	}
	return "", false
}

// A message's head is a byte of flags and four of its length.
const (
	headBytes  = 5
	flagPacked = 1
)

// unpackFramed unpacks the one message of a body. It leaves what is no whole message as it is: who
// reads it says what is wrong.
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

// past is a deadline that is over.
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

// Context is ctx, with the call's place among the long bodies if it has one.
func (c *Call) Context(ctx context.Context) context.Context { return c.place.With(ctx) }

// Worked gives back what the work on a body needed beside memory.
func (c *Call) Worked() { c.place.Give() }

// Sends is called before an answer is sent. It returns false where so many wait for their callers that
// nothing more is to be sent: a call that was refused has then got a bare status, which no caller can leave
// waiting, and any other one is to be aborted.
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

// End gives everything back. The body that Read returned is used by others from then on.
func (c *Call) End() {
	c.place.Give()
	c.hold.Give()
	if c.pooled != nil {
		pooled.Put(c.pooled)
		c.pooled = nil
	}
}
