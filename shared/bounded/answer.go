package bounded

import (
	"cmp"
	"net/http"
)

// Answer buffers a response until it is complete. It is an http.ResponseWriter. Its Header is the connection's own.
type Answer struct {
	http.ResponseWriter
	status int
	body   []byte
	room   [answerRoomBytes]byte // for a short body
}

const answerRoomBytes = 320

// WriteHeader stores the first status.
func (a *Answer) WriteHeader(status int) {
	if a.status == 0 && status >= http.StatusOK {
		a.status = status
	}
}

func (a *Answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	if a.body == nil {
		a.body = a.room[:0]
	}
	a.body = append(a.body, p...)
	return len(p), nil
}

// Reset discards the buffered response, so that another can take its place.
func (a *Answer) Reset() {
	clear(a.Header())
	a.status, a.body = 0, nil
}

// Bare sends the response's status and header without its body.
func (a *Answer) Bare() {
	a.Header().Del("Content-Length")
	a.ResponseWriter.WriteHeader(cmp.Or(a.status, http.StatusServiceUnavailable))
}

// Flush does nothing, because nothing is sent before the response is complete.
func (a *Answer) Flush() {}

// Unwrap returns the connection's ResponseWriter to http.ResponseController.
func (a *Answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// Status returns the status, or 0 if nothing has been written.
func (a *Answer) Status() int { return a.status }

// Len returns the length of the response's body.
func (a *Answer) Len() int { return len(a.body) }

// Send sends the response to r. Its error is about the caller's connection. Over HTTP/2 it returns when the caller has
// taken the response. Otherwise net/http would wait for that itself, for each of the connection's streams, after the
// call has given everything back.
func (a *Answer) Send(r *http.Request) error {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	a.ResponseWriter.WriteHeader(a.status)
	if len(a.body) == 0 {
		return nil
	}
	if _, err := a.ResponseWriter.Write(a.body); err != nil || r.ProtoMajor < 2 {
		return err
	}
	return http.NewResponseController(a.ResponseWriter).Flush()
}
