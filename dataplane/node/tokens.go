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

	hashes atomic.Pointer[[][sha256.Size]byte]
}

// OpenTokens reads the file. One that holds no hash is an error: it would lock out
// everybody.
func OpenTokens(path string) (*Tokens, error) {
	t := new(Tokens)
	files, err := reload.Open([]string{path}, func(files []reload.File) error {
		hashes, err := parseTokens(files[0].Content)
		if err != nil {
			return fmt.Errorf("tokens in %s: %w", path, err)
		}
		t.hashes.Store(&hashes)
		return nil
	})
	if err != nil {
		return nil, err
	}
	t.Files = files
	return t, nil
}

// parseTokens does not quote a line at fault: it may be a token.
func parseTokens(content []byte) (hashes [][sha256.Size]byte, err error) {
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
		hashes = append(hashes, hash)
	}
	if len(hashes) == 0 || len(hashes) > tokensMax {
		return nil, fmt.Errorf("there are %d (1 to %d)", len(hashes), tokensMax)
	}
	return hashes, nil
}

// admit reads the value of an Authorization header. How long it takes tells nothing of
// the tokens: hashes are compared, all of them, in constant time.
func (t *Tokens) admit(authorization string) error {
	if t == nil {
		return nil
	}
	scheme, token, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return unauthenticated("no bearer token")
	}
	shown := sha256.Sum256([]byte(token))
	known := 0
	for _, hash := range *t.hashes.Load() {
		known |= subtle.ConstantTimeCompare(shown[:], hash[:])
	}
	if known == 0 {
		return unauthenticated("unknown bearer token")
	}
	return nil
}

func unauthenticated(why string) error {
	err := connect.NewError(connect.CodeUnauthenticated, errors.New(why))
	err.Meta().Set("WWW-Authenticate", "Bearer")
	return err
}

// guard lets in whoever shows a token to a handler that is no call.
func (t *Tokens) guard(next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := t.admit(r.Header.Get("Authorization")); err != nil {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}
