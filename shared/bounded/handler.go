package bounded

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// Handler bounds an http.Handler whose calls have a body and an answer. Server-sent events and
// streams are none: they are not to be sent through it.
//
// The server's ReadTimeout bounds how long a body may take to arrive, its WriteTimeout how long an
// answer may take to be read, and its ConnContext is the one of this package.
type Handler struct {
	Next   http.Handler
	Memory *Memory
	Slots  *Slots // nil: as many as there is memory for, as probes need it

	// Route bounds a request's body.
	Route func(*http.Request) Route

	// Time is how long Next may work; 0: as long as it likes.
	Time time.Duration

	// Refused is called for each call that a bound refuses; nil: nothing is. Refuse answers it;
	// nil: in plain text.
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

// send aborts a call whose answer there is no memory for.
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

// work holds a slot no longer than Next runs, even if it panics.
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

// A shed call should wait so long before it is tried again: a slot and memory are free again after a moment.
const (
	RetryAfter        = time.Second
	RetryAfterSeconds = "1" // for Retry-After
)
