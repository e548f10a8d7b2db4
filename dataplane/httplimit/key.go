package httplimit

import (
	"context"
	"net/http"
	"strconv"
	"strings"
)

// Header counts callers by a header of theirs, with spaces around it taken off. A
// caller who may choose it freely may choose a new one each time: check it first.
func Header(name string) func(Call) (string, bool) {
	name = http.CanonicalHeaderKey(name)
	return func(c Call) (string, bool) {
		values := c.Header()[name]
		if len(values) != 1 { // of several, the next layer may take any
			return "", false
		}
		value := strings.TrimSpace(values[0])
		return value, value != ""
	}
}

// Principal counts callers by what find makes of the call's context: what an
// authenticating layer before this one has put there.
func Principal(find func(context.Context) (string, bool)) func(Call) (string, bool) {
	return func(c Call) (string, bool) { return find(c.Context()) }
}

// Everybody counts all callers together.
func Everybody(Call) (string, bool) { return "everybody", true }

// First takes the first key that is found: the principal, for instance, or else the
// address. The keys of each are told apart by its place, "0:" and so on, so that a
// caller cannot name another's address as its own name.
func First(keys ...func(Call) (string, bool)) func(Call) (string, bool) {
	return func(c Call) (string, bool) {
		for i, key := range keys {
			if identifier, found := key(c); found && identifier != "" {
				return strconv.Itoa(i) + ":" + identifier, true
			}
		}
		return "", false
	}
}
