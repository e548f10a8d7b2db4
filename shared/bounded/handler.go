package bounded

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// Handler bounds an http.Handler whose calls have a body and a response. Do not use it for streams such as server-sent
// events.
//
// The server's ReadTimeout bounds the time in which a body must arrive, and its WriteTimeout the time in which a
// response must be read. Its ConnContext must be the ConnContext of this package.
type Handler struct {
	Next   http.Handler
	Memory *Memory
	Slots  *Slots // nil: bounded only by memory, as for probes

	// Route bounds a request's body.
	Route func(*http.Request) Route

	// Time bounds the time in which Next can work; 0: no bound.
	Time time.Duration

	// Refused is called for each call that a bound rejects; it may be nil. Refuse sends the response to such a call; nil:
	// plain text.
	Refused func(Bound)
	Refuse  func(http.ResponseWriter, *http.Request, error)
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	call := new(Call)
	defer call.End()
	caller := CallerOf(r.Context())
	answer := &Answer{ResponseWriter: w}
	_, err := call.Read(w, r, h.Memory, caller, h.Route(r))
	if err == nil {
		err = h.work(answer, r, caller)
	}
	if err != nil {
		h.refuse(answer, r, err)
	}
	call.Worked()
	h.send(call, answer, r)
}

// send sends the response of a call, and aborts the call if there is no memory for the response.
func (h *Handler) send(call *Call, answer *Answer, r *http.Request) {
	ok, aborted := call.Sends(answer)
	if ok {
		_ = answer.Send(r) // the caller may have gone
		return
	}
	if h.Refused != nil {
		h.Refused(BoundMemory)
	}
	if aborted {
		panic(http.ErrAbortHandler)
	}
}

// work holds a slot only while Next runs, even if it panics.
func (h *Handler) work(w http.ResponseWriter, r *http.Request, caller *Caller) error {
	if h.Slots != nil {
		if err := h.Slots.Take(caller); err != nil {
			return err
		}
		defer h.Slots.Give(caller)
	}
	if h.Time > 0 {
		ctx, cancel := context.WithTimeout(r.Context(), h.Time)
		defer cancel()
		r = r.WithContext(ctx)
	}
	h.Next.ServeHTTP(w, r)
	return nil
}

func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	var refusal *Refusal
	status := http.StatusBadRequest
	if errors.As(err, &refusal) {
		status = refusal.Status()
		if h.Refused != nil {
			h.Refused(refusal.Bound)
		}
		if refusal.Shed() {
			w.Header().Set("Retry-After", RetryAfterSeconds)
		}
	}
	if h.Refuse != nil {
		h.Refuse(w, r, err)
		return
	}
	http.Error(w, err.Error(), status)
}

// RetryAfter is the time after which a client should repeat a shed call. A slot and memory are usually free again by
// then.
const (
	RetryAfter        = time.Second
	RetryAfterSeconds = "1" // for Retry-After
)
