package routes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weirhq/weir/dataplane"
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

// reader reads one body, and collects all that is wrong with it.
type reader struct {
	found []violation
	more  int // that were not kept
}

func (r *reader) wrong(location, format string, args ...any) {
	if len(r.found) == violationsMax {
		r.more++
		return
	}
	r.found = append(r.found, violation{location, fmt.Sprintf(format, args...)})
}

// fault is nil if nothing was wrong.
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

// object is what a JSON object holds, by its fields' exact names. What was not asked
// for when all is read is unknown.
type object struct {
	at     string // where it is, such as body[3]
	fields map[string]json.RawMessage
	*reader
}

// object reads an object of these fields. Names that differ in case are other names.
func (r *reader) object(at string, text []byte, known ...string) object {
	o := object{at: at, reader: r}
	if err := decode(text, &o.fields); err != nil || o.fields == nil {
		r.wrong(at, "is not a JSON object")
		o.fields = nil
		return o
	}
	var unknown []string
	for name := range o.fields {
		if !slices.Contains(known, name) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	for _, name := range unknown {
		r.wrong(at, "has the unknown field %.64q (known: %s)", name, strings.Join(known, ", "))
	}
	return o
}

// decode reads one JSON value, of valid UTF-8: what is not would be read as if it were,
// and two names as one.
func decode(text []byte, into any) error {
	if !utf8.Valid(text) {
		return fmt.Errorf("not UTF-8")
	}
	return json.Unmarshal(text, into)
}

func (o *object) has(name string) bool {
	text, ok := o.fields[name]
	return ok && !bytes.Equal(text, []byte("null"))
}

// require is false where a field is wanting, which is then said once.
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

// name is a string of 1 to 255 bytes.
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

func (o *object) string(field string) (s string, ok bool) {
	text := o.fields[field]
	if n := len(text); n >= 2 && text[0] == '"' && bytes.IndexByte(text, '\\') < 0 {
		return string(text[1 : n-1]), true // valid JSON, and nothing escaped in it
	}
	if halfSurrogate(text) || json.Unmarshal(text, &s) != nil {
		o.wrong(o.at+"."+field, "is not a string")
		return "", false
	}
	return s, true
}

// halfSurrogate finds in a JSON string an escaped half of a UTF-16 pair, which stands
// for nothing and would be read as U+FFFD.
func halfSurrogate(text []byte) bool {
	half := func(i int) int64 { // of the escape at i, or 0
		if i+6 > len(text) || text[i] != '\\' || text[i+1] != 'u' {
			return 0
		}
		n, err := strconv.ParseInt(string(text[i+2:i+6]), 16, 32)
		if err != nil || n < 0xD800 || n > 0xDFFF {
			return 0
		}
		return n
	}
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		switch first := half(i); {
		case first == 0:
			i++ // what it escapes
		case first < 0xDC00 && half(i+6) >= 0xDC00:
			i += 11
		default:
			return true
		}
	}
	return false
}

// integer is between its bounds, written without a fraction or exponent.
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

// readLimit reads a check. It is in no workspace yet.
func (r *reader) readLimit(at string, text []byte) dataplane.Request {
	o := r.object(at, text, "namespace", "identifier", "limit", "duration", "cost")
	request := dataplane.Request{Namespace: o.name("namespace"), Identifier: o.name("identifier")}
	if o.require("limit") {
		request.Limit = o.integer("limit", 0, window.LimitMax)
	}
	if o.require("duration") {
		ms := o.integer("duration", durationMsMin, durationMsMax)
		request.Duration = time.Duration(min(max(ms, 0), durationMsMax)) * time.Millisecond
	}
	if o.has("cost") {
		request.Cost = o.integer("cost", 0, window.LimitMax)
		request.ZeroCost = request.Cost == 0 // in this protocol a cost of 0 that is there is one
	}
	return request
}

func (r *reader) readMulti(text []byte) []dataplane.Request {
	var items []json.RawMessage
	switch err := decode(text, &items); {
	case err != nil || items == nil:
		r.wrong("body", "is not a JSON array")
		return nil
	case len(items) < 1 || len(items) > multiMax:
		r.wrong("body", "has %d items (1 to %d)", len(items), multiMax)
		return nil
	}
	requests := make([]dataplane.Request, len(items))
	for i, item := range items {
		requests[i] = r.readLimit("body["+strconv.Itoa(i)+"]", item)
	}
	return requests
}

// readSet reads an override. Its pattern is the field that is called identifier.
func (r *reader) readSet(text []byte) (namespace string, o Override) {
	b := r.object("body", text, "namespace", "identifier", "limit", "duration")
	namespace, o.Pattern = b.name("namespace"), b.name("identifier")
	if stars := strings.Count(o.Pattern, "*"); stars > window.PatternStarsMax {
		r.wrong("body.identifier", "has %d '*' (0 to %d)", stars, window.PatternStarsMax)
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
	b := r.object("body", text, "namespace", "identifier")
	return b.name("namespace"), b.name("identifier")
}

const (
	pageDefault = 10
	pageMax     = 100
)

func (r *reader) readList(text []byte) (namespace, after string, most int64) {
	b := r.object("body", text, "namespace", "cursor", "limit")
	namespace, most = b.name("namespace"), pageDefault
	if b.has("limit") {
		most = b.integer("limit", 1, pageMax)
	}
	if b.has("cursor") {
		if s, ok := b.string("cursor"); ok {
			if after, ok = readCursor(s); !ok {
				b.wrong("body.cursor", "is not one of this API's")
			}
		}
	}
	return namespace, after, most
}
