package leases

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/internal/slots"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Lease is a lease by id, with all that a node needs to renew or release it.
type Lease struct {
	Key     slots.Name
	ID      string // 1 to store.LeaseIDBytesMax bytes
	TTL     time.Duration
	SinceMs int64  // Unix ms
	Holder  string // a label
}

const (
	// TTLMax is the longest time to live.
	TTLMax = 5 * time.Minute

	// HolderBytesMax is how long a label may be.
	HolderBytesMax = 64

	// TokenBytesMax is how long a token may be.
	TokenBytesMax = 1200
)

// ErrToken is returned for a text that is no token.
var ErrToken = fmt.Errorf("%w: lease is not the text of a granted lease", window.ErrInvalid)

// tokenVersion is the first byte of a token, and determines its format.
const tokenVersion = 1

// Token returns the lease as text. It is no secret beyond its id, and not signed, because its parts are checked like
// those of any request.
func (l *Lease) Token() string {
	b := []byte{tokenVersion}
	for _, s := range []string{l.Key.Workspace, l.Key.Namespace, l.Key.Identifier, l.ID, l.Holder} {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	b = binary.AppendUvarint(b, uint64(l.TTL.Milliseconds()))
	b = binary.AppendUvarint(b, uint64(l.SinceMs))
	return base64.RawURLEncoding.EncodeToString(b)
}

// Parse reads a token.
func Parse(token string) (l Lease, err error) {
	if len(token) > TokenBytesMax {
		return l, ErrToken
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(b) == 0 || b[0] != tokenVersion {
		return l, ErrToken
	}
	b = b[1:]
	number := func() uint64 {
		n, size := binary.Uvarint(b)
		if size <= 0 {
			err = ErrToken
			return 0
		}
		b = b[size:]
		return n
	}
	for _, f := range []struct {
		to   *string
		most uint64
	}{{&l.Key.Workspace, window.WorkspaceBytesMax}, {&l.Key.Namespace, window.NamespaceBytesMax},
		{&l.Key.Identifier, window.IdentifierBytesMax}, {&l.ID, store.LeaseIDBytesMax}, {&l.Holder, HolderBytesMax}} {
		n := number()
		if err != nil || n > f.most || n > uint64(len(b)) || n == 0 && f.to != &l.Holder {
			return Lease{}, ErrToken
		}
		*f.to, b = string(b[:n]), b[n:]
	}
	ttl, since := number(), number()
	if err != nil || len(b) > 0 || ttl < 1 || ttl > uint64(TTLMax.Milliseconds()) || since > 1<<52 {
		return Lease{}, ErrToken
	}
	l.TTL, l.SinceMs = time.Duration(ttl)*time.Millisecond, int64(since)
	return l, nil
}

// Each calls do with the leases of at most most tokens, and returns the outcome of each.
func Each(tokens []string, most int, do func([]Lease) []error) []error {
	if len(tokens) > most {
		return slices.Repeat([]error{fmt.Errorf("%w: leases holds %d items (at most %d)", window.ErrInvalid, len(tokens),
			most)}, len(tokens))
	}
	errs := make([]error, len(tokens))
	var leases []Lease
	var places []int
	for i, token := range tokens {
		var l Lease
		if l, errs[i] = Parse(token); errs[i] == nil {
			leases, places = append(leases, l), append(places, i)
		}
	}
	if len(leases) > 0 {
		for n, err := range do(leases) {
			errs[places[n]] = err
		}
	}
	return errs
}
