package bounded

import (
	"cmp"
	"net/http"
)

// Answer keeps an answer until it is whole. It is an http.ResponseWriter; its Header is the
// connection's own.
type Answer struct {
	http.ResponseWriter
	status int
	body   []byte
	room   [answerRoomBytes]byte // for a short body
}

const answerRoomBytes = 320

// WriteHeader keeps the first status.
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

// Reset forgets what was written of an answer, for another one to take its place.
func (a *Answer) Reset() {
	clear(a.Header())
	a.status, a.body = 0, nil
}

// Bare sends the answer's status and header without its body.
func (a *Answer) Bare() {
	a.Header().Del("Content-Length")
	a.ResponseWriter.WriteHeader(cmp.Or(a.status, http.StatusServiceUnavailable))
}

// Flush does nothing: nothing is sent before the answer is whole.
func (a *Answer) Flush() {}

// Unwrap leads http.ResponseController to the connection.
func (a *Answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// Status is 0 as long as nothing of the answer is there.
func (a *Answer) Status() int { return a.status }

// Len is the length of the answer's body.
func (a *Answer) Len() int { return len(a.body) }

// Send sends the answer to r. What it returns is about the caller's connection. Over HTTP/2 it
// returns when the caller takes the answer: net/http would go on to wait for that by itself, for
// each of the connection's streams, when the call has given everything back.
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
