package access

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/shared/bounded"
	"github.com/weirhq/weir/shared/reload"
)

// tokensMax bounds the number of tokens with which each call is compared.
const tokensMax = 1000

// Tokens are the bearer tokens that callers can use. The file has no tokens, only a SHA-256 hash of each, in
// hexadecimal, one per line, as sha256sum prints it. Lines that begin with '#' are comments. The words after a hash are
// a name for people, except words with an equals sign, which are settings:
//
//	workspaces=acme,beta           the workspaces for which the token is valid; default: all
//	actions=limit,read             the token's actions, by the names in ActionNames; default: everything,
//	                               or limit, read and overrides if there are workspaces
//	expires=2027-01-31T00:00:00Z   when the token becomes invalid; default: never
//
// With nil Tokens, every caller is allowed.
type Tokens struct {
	*reload.Files // Check reads the file again, and keeps the tokens in force if the file is invalid

	now   func() time.Time
	known atomic.Pointer[knownTokens]
}

// knownTokens is the content of the file. It does not change.
type knownTokens struct {
	all     []Token
	version int64 // grows with each change
}

// Token is a token with its caller and scope.
type Token struct {
	Caller  *bounded.Caller // stays the same while the token is in the file
	Scope   *Scope          // nil: every workspace and every action
	Expires time.Time       // zero: never

	hash [sha256.Size]byte
}

// Open reads a file of tokens; now is the clock by which they expire. A file that holds no hash is an
// error: it would lock out everybody.
func Open(path string, now func() time.Time) (*Tokens, error) {
	t := &Tokens{now: now}
	files, err := reload.Open([]string{path}, func(files []reload.File) error {
		known, err := parseTokens(files[0].Content)
		if err != nil {
			return fmt.Errorf("tokens in %s: %w", path, err)
		}
		t.replace(known)
		return nil
	})
	if err != nil {
		return nil, err
	}
	t.Files = files
	return t, nil
}

// replace makes all the current tokens. A token that was current before keeps its caller, and with
// it the share of each bound that its calls hold.
func (t *Tokens) replace(all []Token) {
	version := int64(1)
	if last := t.known.Load(); last != nil {
		version = last.version + 1
		for i := range all {
			if at := slices.IndexFunc(last.all, func(old Token) bool { return old.hash == all[i].hash }); at >= 0 {
				all[i].Caller = last.all[at].Caller
			}
		}
	}
	t.known.Store(&knownTokens{all, version})
}

// Unscoped returns the number of tokens that are valid for every workspace and every action.
func (t *Tokens) Unscoped() (n int) {
	for i := range t.known.Load().all {
		if t.known.Load().all[i].Scope == nil {
			n++
		}
	}
	return n
}

// Version returns a number that grows with each change of the tokens.
func (t *Tokens) Version() int64 { return t.known.Load().version }

// parseTokens reads the content of a tokens file. Its errors quote only the names of settings,
// because the rest of a line may be a token.
func parseTokens(content []byte) (known []Token, err error) {
	n, lines := 0, make(map[[sha256.Size]byte]int)
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
		if first, twice := lines[hash]; twice { // the settings of the two may contradict each other
			return nil, fmt.Errorf("line %d has the same hash as line %d", n, first)
		}
		lines[hash] = n
		one := Token{hash: hash, Caller: bounded.Named("token " + hex.EncodeToString(hash[:]))}
		if err := one.readSettings(fields[1:]); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		known = append(known, one)
	}
	if len(known) == 0 || len(known) > tokensMax {
		return nil, fmt.Errorf("there are %d (1 to %d)", len(known), tokensMax)
	}
	return known, nil
}

// readSettings reads the words after a hash.
func (t *Token) readSettings(words [][]byte) (err error) {
	var settings []string
	for _, word := range words {
		name, value, ok := strings.Cut(string(word), "=")
		switch {
		case !ok && misspelt(name):
			return fmt.Errorf("%.64q lacks an '='  (workspaces=, actions= or expires=)", name)
		case !ok: // of a name for people
		case name != "expires":
			settings = append(settings, string(word))
		case !t.Expires.IsZero():
			return errors.New(`"expires" occurs twice`)
		default:
			if t.Expires, err = time.Parse(time.RFC3339, value); err != nil {
				return fmt.Errorf(`"expires" is %.40q (a time such as 2027-01-31T00:00:00Z)`, value)
			}
		}
	}
	t.Scope, err = parseScope(settings)
	return err
}

// misspelt reports whether a word was probably meant as a setting, such as "workspaces:acme". As a
// name, it would leave the token valid for more than was meant.
func misspelt(word string) bool {
	name, _, _ := strings.Cut(strings.ToLower(word), ":")
	return slices.Contains([]string{"workspace", "workspaces", "action", "actions", "expire", "expires"}, name)
}

// Admit finds the token in an Authorization header. It compares all hashes in constant time, so the
// time it takes does not reveal any token. t must not be nil.
func (t *Tokens) Admit(authorization string) (*Token, error) {
	scheme, shown, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(scheme, "Bearer") || shown == "" {
		return nil, unauthenticated("no bearer token")
	}
	hash := sha256.Sum256([]byte(shown))
	known := t.known.Load().all
	at := -1
	for i := range known {
		at = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(hash[:], known[i].hash[:]), i, at)
	}
	if at < 0 || known[at].over(t.now()) { // the same answer for both, so that it does not reveal which tokens existed
		return nil, unauthenticated("unknown bearer token")
	}
	return &known[at], nil
}

func (t *Token) over(now time.Time) bool { return !t.Expires.IsZero() && !now.Before(t.Expires) }

func unauthenticated(why string) error {
	err := connect.NewError(connect.CodeUnauthenticated, errors.New(why))
	err.Meta().Set("WWW-Authenticate", "Bearer")
	return err
}

// Guard requires a token that allows an action, for a handler that is not a call of the API.
func (t *Tokens) Guard(needs Action, next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown, err := t.Admit(r.Header.Get("Authorization"))
		switch {
		case err != nil:
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, err.Error(), http.StatusUnauthorized)
		case !shown.Scope.May(needs):
			http.Error(w, OutOfScope().Error(), http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}
