package node

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/shared/bounded"
	"github.com/weirhq/weir/shared/reload"
)

// tokensMax bounds what each call is compared with.
const tokensMax = 1000

// Tokens are what callers may show to be let in. Their file holds no token, only
// hashes: one SHA-256 in hexadecimal a line, as sha256sum prints it; what follows it
// in the line names it for people, and lines that begin with '#' are for them too.
// Nil Tokens let everybody in.
type Tokens struct {
	*reload.Files // Check reads the file again, and keeps the tokens in force if it is at fault

	known atomic.Pointer[[]token]
}

// token is one of them, and who shows it.
type token struct {
	hash   [sha256.Size]byte
	caller *bounded.Caller
}

// OpenTokens reads the file. One that holds no hash is an error: it would lock out
// everybody.
func OpenTokens(path string) (*Tokens, error) {
	t := new(Tokens)
	files, err := reload.Open([]string{path}, func(files []reload.File) error {
		known, err := parseTokens(files[0].Content)
		if err != nil {
			return fmt.Errorf("tokens in %s: %w", path, err)
		}
		t.known.Store(&known)
		return nil
	})
	if err != nil {
		return nil, err
	}
	t.Files = files
	return t, nil
}

// parseTokens does not quote a line at fault: it may be a token.
func parseTokens(content []byte) (known []token, err error) {
	n := 0
	for line := range bytes.Lines(content) {
		n++
		fields := bytes.Fields(line)
		if len(fields) == 0 || fields[0][0] == '#' {
			continue
		}
		var hash [sha256.Size]byte
		if len(fields[0]) != hex.EncodedLen(len(hash)) {
			return nil, fmt.Errorf("line %d does not begin with a SHA-256 in hexadecimal", n)
		}
		if _, err := hex.Decode(hash[:], fields[0]); err != nil {
			return nil, fmt.Errorf("line %d does not begin with a SHA-256 in hexadecimal", n)
		}
		known = append(known, token{hash, new(bounded.Caller)})
	}
	if len(known) == 0 || len(known) > tokensMax {
		return nil, fmt.Errorf("there are %d (1 to %d)", len(known), tokensMax)
	}
	return known, nil
}

// admit reads the value of an Authorization header. Its time does not depend on
// the tokens: it compares all hashes, in constant time. Nil Tokens admit every caller, without a name.
func (t *Tokens) admit(authorization string) (*bounded.Caller, error) {
	if t == nil {
		return nil, nil
	}
	scheme, shown, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(scheme, "Bearer") || shown == "" {
		return nil, unauthenticated("no bearer token")
	}
	hash := sha256.Sum256([]byte(shown))
	known := *t.known.Load()
	at := -1
	for i := range known {
		at = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(hash[:], known[i].hash[:]), i, at)
	}
	if at < 0 {
		return nil, unauthenticated("unknown bearer token")
	}
	return known[at].caller, nil
}

func unauthenticated(why string) error {
	err := connect.NewError(connect.CodeUnauthenticated, errors.New(why))
	err.Meta().Set("WWW-Authenticate", "Bearer")
	return err
}

// guard requires a token for a handler that is no call.
func (t *Tokens) guard(next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := t.admit(r.Header.Get("Authorization")); err != nil {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}
