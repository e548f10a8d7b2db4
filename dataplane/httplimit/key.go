package httplimit

import (
	"context"
	"net/http"
	"strconv"
	"strings"
)

// Header returns a Key that identifies callers by a header field, without spaces around it. Use it only for a header
// that a layer before has checked: a caller who may choose the value freely may choose another value each time.
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

// Principal returns a Key that identifies callers by the result of find, such as the user that an authenticating layer
// before this layer has put into the call's context.
func Principal(find func(context.Context) (string, bool)) func(Call) (string, bool) {
	return func(c Call) (string, bool) { return find(c.Context()) }
}

// Everybody counts all callers together.
func Everybody(Call) (string, bool) { return "everybody", true }

// First returns a Key that takes the first key that is found: for example, the principal, or otherwise the address.
// Each key gets its place as a prefix, "0:" and so on, so that a caller cannot use another caller's address as its own
// name.
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
