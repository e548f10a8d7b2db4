package routes

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/node/wire"
	"github.com/weirhq/weir/shared/window"
)

const (
	durationMsMin = int64(window.DurationMin / time.Millisecond)
	durationMsMax = int64(window.DurationMax / time.Millisecond)

	// multiMax is how many checks a multiLimit may carry.
	multiMax = 100

	// violationsMax bounds the answer to a body in which everything is wrong.
	violationsMax = 16
)

// reader reads a body, and collects all of its faults.
type reader struct {
	found []violation
	more  int      // number of faults that were not kept
	sent  []string // identifiers of the checks as they were sent
}

func (r *reader) wrong(location, format string, args ...any) {
	if len(r.found) == violationsMax {
		r.more++
		return
	}
	r.found = append(r.found, violation{location, fmt.Sprintf(format, args...)})
}

// fault returns the first fault, or nil.
func (r *reader) fault() *Fault {
	if len(r.found) == 0 {
		return nil
	}
	f := NewFault(http.StatusBadRequest, "")
	f.Errors = r.found
	said := make([]string, len(r.found))
	for i, v := range r.found {
		said[i] = v.Location + " " + v.Message
	}
	if r.more > 0 {
		said = append(said, fmt.Sprintf("and %d more", r.more))
	}
	f.Detail = strings.Join(said, "; ")
	return f
}

// object is a JSON object, by its fields' exact names.
type object struct {
	at     string            // its place, for example body[3]
	fields map[string][]byte // nil: it is no object
	*reader
}

// object reads an object of these fields, each at most once, in valid JSON. Names that differ in
// case are other names.
func (r *reader) object(at string, text []byte, known ...string) object {
	o := object{at: at, fields: make(map[string][]byte, len(known)), reader: r}
	if !members(text, func(name, value []byte) {
		field := ""
		if i := slices.IndexFunc(known, func(k string) bool { return k == string(name) }); i >= 0 {
			field = known[i]
		}
		o.add(field, name, value, known)
	}) {
		r.wrong(at, "is not a JSON object")
		o.fields = nil
	}
	return o
}

// add adds a field. field is empty if its name is unknown.
func (o *object) add(field string, name, value []byte, known []string) {
	_, twice := o.fields[field]
	switch {
	case field != "" && !twice:
		o.fields[field] = value
	case len(o.found) == violationsMax:
		o.more++
	case twice:
		o.wrong(o.at, "has the field %q twice", field)
	default:
		o.wrong(o.at, "has the unknown field %.64q (known: %s)", name, strings.Join(known, ", "))
	}
}

// body reads a whole body as an object.
func (r *reader) body(text []byte, known ...string) object {
	if !valid(text) {
		r.wrong("body", "is not a JSON object")
		return object{at: "body", reader: r}
	}
	return r.object("body", text, known...)
}

func (o *object) has(name string) bool {
	text, ok := o.fields[name]
	return ok && !bytes.Equal(text, []byte("null"))
}

// require reports whether a field is present, and adds a fault otherwise.
func (o *object) require(name string) bool {
	if o.fields == nil {
		return false
	}
	if !o.has(name) {
		o.wrong(o.at+"."+name, "is required")
		return false
	}
	return true
}

// name reads a string of 1 to 255 bytes.
func (o *object) name(field string) string {
	if !o.require(field) {
		return ""
	}
	s, ok := o.string(field)
	switch {
	case !ok:
	case s == "":
		o.wrong(o.at+"."+field, "is empty (1 to %d bytes)", window.IdentifierBytesMax)
	case len(s) > window.IdentifierBytesMax:
		o.wrong(o.at+"."+field, "is %d bytes long (1 to %d bytes)", len(s), window.IdentifierBytesMax)
	}
	return s
}

// identifier reads a name that a limited caller may have chosen: any string that is not empty. It
// returns the name as it was sent, and the identifier under which it is counted.
func (o *object) identifier() (sent, counted string) {
	const field = "identifier"
	if !o.require(field) {
		return "", ""
	}
	text := o.fields[field]
	if !isString(text) {
		o.wrong(o.at+"."+field, "is not a string")
		return "", ""
	}
	if sent, _ = wire.String(text); sent == "" {
		o.wrong(o.at+"."+field, "is empty (1 byte or more)")
		return "", ""
	}
	return sent, window.BoundIdentifier(sent)
}

// string reads a string of Unicode text. Bytes that are not UTF-8, and an escaped half of a UTF-16
// pair, are errors.
func (o *object) string(field string) (s string, ok bool) {
	text := o.fields[field]
	if isString(text) {
		if s, ok = wire.String(text); ok {
			return s, true
		}
	}
	o.wrong(o.at+"."+field, "is not a string")
	return "", false
}

// isString reports whether a valid JSON value is a string.
func isString(text []byte) bool { return len(text) >= 2 && text[0] == '"' }

// integer reads an integer between its bounds, written without a fraction or exponent.
func (o *object) integer(field string, least, most int64) int64 {
	text := string(o.fields[field])
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil && strings.Trim(text, "-0123456789") != "":
		o.wrong(o.at+"."+field, "is not an integer")
	case err != nil || n < least || n > most:
		o.wrong(o.at+"."+field, "is %.24s (%d to %d)", text, least, most)
	}
	return n
}

// readCheck is readLimit for a whole body.
func (r *reader) readCheck(text []byte) dataplane.Request {
	if !valid(text) {
		r.wrong("body", "is not a JSON object")
		return dataplane.Request{}
	}
	return r.readLimit("body", text)
}

// readLimit reads a check. It is in no workspace yet.
func (r *reader) readLimit(at string, text []byte) dataplane.Request {
	o := r.object(at, text, "namespace", "identifier", "limit", "duration", "cost")
	request := dataplane.Request{Namespace: o.name("namespace")}
	sent, counted := o.identifier()
	request.Identifier = counted
	r.sent = append(r.sent, sent)
	if o.require("limit") {
		request.Limit = o.integer("limit", 0, window.LimitMax)
	}
	if o.require("duration") {
		ms := o.integer("duration", durationMsMin, durationMsMax)
		request.Duration = time.Duration(min(max(ms, 0), durationMsMax)) * time.Millisecond
	}
	if o.has("cost") {
		request.Cost = o.integer("cost", 0, window.LimitMax)
		request.ZeroCost = request.Cost == 0 // in this protocol an explicit cost of 0 counts nothing
	}
	return request
}

func (r *reader) readMulti(text []byte) []dataplane.Request {
	requests, n := []dataplane.Request(nil), 0
	count := func([]byte) { n++ }
	read := func(item []byte) {
		requests = append(requests, r.readLimit("body["+strconv.Itoa(len(requests))+"]", item))
	}
	switch {
	case !valid(text) || !items(text, count):
		r.wrong("body", "is not a JSON array")
	case n < 1 || n > multiMax:
		r.wrong("body", "has %d items (1 to %d)", n, multiMax)
	default:
		requests = make([]dataplane.Request, 0, n)
		items(text, read)
	}
	return requests
}

// readSet reads an override. Its pattern is the field that is called identifier.
func (r *reader) readSet(text []byte) (namespace string, o Override) {
	b := r.body(text, "namespace", "identifier", "limit", "duration")
	namespace, o.Pattern = b.name("namespace"), b.name("identifier")
	if problem := window.PatternProblem(o.Pattern); problem != "" {
		r.wrong("body.identifier", "%s", problem)
	}
	if b.require("limit") {
		o.Limit = b.integer("limit", 0, window.LimitMax)
	}
	if b.require("duration") {
		o.DurationMs = b.integer("duration", durationMsMin, durationMsMax)
	}
	return namespace, o
}

func (r *reader) readName(text []byte) (namespace, pattern string) {
	b := r.body(text, "namespace", "identifier")
	return b.name("namespace"), b.name("identifier")
}

const (
	pageDefault = 10
	pageMax     = 100
)

func (r *reader) readList(text []byte) (namespace, after string, most int64) {
	b := r.body(text, "namespace", "cursor", "limit")
	namespace, most = b.name("namespace"), pageDefault
	if b.has("limit") {
		most = b.integer("limit", 1, pageMax)
	}
	if b.has("cursor") {
		if s, ok := b.string("cursor"); ok {
			if after, ok = readCursor(s); !ok {
				b.wrong("body.cursor", "is not a cursor of this API")
			}
		}
	}
	return namespace, after, most
}
