package routes

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
)

// meta is in every answer. The request's ID is in no log of the node: it names an answer in
// the caller's logs.
type meta struct {
	RequestID string `json:"requestId"`
}

// answer is the envelope of a response without an error.
type answer struct {
	Meta       meta        `json:"meta"`
	Data       any         `json:"data"`
	Pagination *pagination `json:"pagination,omitempty"`
}

type pagination struct {
	HasMore bool   `json:"hasMore"`
	Cursor  string `json:"cursor,omitempty"`
}

// Fault is an answer that is an error.
type Fault struct {
	Title  string      `json:"title"`
	Detail string      `json:"detail"`
	Status int         `json:"status"`
	Type   string      `json:"type"`
	Errors []violation `json:"errors,omitempty"`

	cause error // only for the log
}

// violation is the fault of a field.
type violation struct {
	Location string `json:"location"` // for example body[3].limit
	Message  string `json:"message"`
}

// types are the machine-readable names of faults. They are names, not links.
var types = map[int]string{
	http.StatusBadRequest:            "urn:weir:error:invalid-request",
	http.StatusUnauthorized:          "urn:weir:error:unauthorized",
	http.StatusForbidden:             "urn:weir:error:overrides-off",
	http.StatusNotFound:              "urn:weir:error:not-found",
	http.StatusMethodNotAllowed:      "urn:weir:error:method-not-allowed",
	http.StatusRequestEntityTooLarge: "urn:weir:error:body-too-long",
	http.StatusUnsupportedMediaType:  "urn:weir:error:media-type",
	http.StatusTooManyRequests:       "urn:weir:error:too-many-calls",
	http.StatusInternalServerError:   "urn:weir:error:internal",
	http.StatusServiceUnavailable:    "urn:weir:error:store-unavailable",
}

// NewFault returns an error with one of the statuses 400, 401, 403, 404, 405, 413, 415, 429, 500 and 503.
func NewFault(status int, format string, args ...any) *Fault {
	return &Fault{Title: http.StatusText(status), Detail: fmt.Sprintf(format, args...), Status: status,
		Type: types[status]}
}

func notFound(detail string) *Fault { return NewFault(http.StatusNotFound, "%s", detail) }

// Refuse answers with an error. A 400 lists its violations, be there none.
func Refuse(w http.ResponseWriter, f *Fault) {
	kind := "application/json"
	if f.Status == http.StatusTooManyRequests {
		kind = "application/problem+json"
	}
	m := meta{requestID()}
	if f.Status == http.StatusBadRequest {
		listed := struct {
			*Fault
			Errors []violation `json:"errors"`
		}{f, append([]violation{}, f.Errors...)}
		write(w, f.Status, kind, struct {
			Meta  meta `json:"meta"`
			Error any  `json:"error"`
		}{m, listed})
		return
	}
	write(w, f.Status, kind, struct {
		Meta  meta   `json:"meta"`
		Error *Fault `json:"error"`
	}{m, f})
}

func write(w http.ResponseWriter, status int, kind string, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // strings, integers and booleans
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // the caller may have gone
}

func requestID() string { return "req_" + rand.Text() }
