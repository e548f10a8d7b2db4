package redisorigin

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/shared/window"
)

// keyspace names cells in Redis: {prefix}:{mode}:{identity}:{sequence}, followed by :{generation} for cells that have a
// generation. identity, whose braces are part of the name, is workspace, namespace, identifier and milliseconds, joined
// by colons.
//
// The names are escaped: each byte that is a delimiter here (colon, braces, percent), or that does not print, becomes
// %XX. For example, "a:b" becomes "a%3Ab". All other bytes stand for themselves, including UTF-8. A cell has exactly
// one key, and a key belongs to at most one cell.
type keyspace struct {
	heads [window.Modes]string // "weir:exact:{"
}

func newKeyspace(prefix string) (k keyspace) {
	for mode := range k.heads {
		k.heads[mode] = prefix + ":" + window.Mode(mode).String() + ":{"
	}
	return k
}

const prefixBytesMax = 64

func checkPrefix(prefix string) error {
	if len(prefix) > prefixBytesMax {
		return fmt.Errorf("option Prefix is %d bytes long (1 to %d)", len(prefix), prefixBytesMax)
	}
	forbidden := func(c rune) bool { return c <= ' ' || c >= 0x7f || c == '{' || c == '}' }
	if strings.ContainsFunc(prefix, forbidden) {
		return fmt.Errorf("option Prefix is %q (printable ASCII without %q)", prefix, "{}")
	}
	return nil
}

func (k keyspace) key(c window.Cell) string {
	const numbers = 3*20 + len("::}::")
	head := k.heads[c.Mode]
	b := make([]byte, 0, len(head)+len(c.Workspace)+len(c.Namespace)+len(c.Identifier)+numbers+8)
	b = append(b, head...)
	b = appendIdentity(b, &c.Key)
	b = append(b, '}', ':')
	b = strconv.AppendInt(b, c.Sequence, 10)
	if c.Generation != 0 {
		b = append(b, ':')
		b = strconv.AppendUint(b, uint64(c.Generation), 10)
	}
	return string(b)
}

// appendIdentity appends the part that is the same for all cells of a key.
func appendIdentity(b []byte, key *window.Key) []byte {
	b = appendEscaped(b, key.Workspace)
	b = append(b, ':')
	b = appendEscaped(b, key.Namespace)
	b = append(b, ':')
	b = appendEscaped(b, key.Identifier)
	b = append(b, ':')
	return strconv.AppendInt(b, key.DurationMs(), 10)
}

var errForeignKey = errors.New("not a key of this origin")

// cell returns the cell of a key: it is the inverse of key.
func (k keyspace) cell(key string) (window.Cell, error) {
	mode, tail, ok := k.modeOf(key)
	if !ok {
		return window.Cell{}, fmt.Errorf("%q: %w", key, errForeignKey)
	}
	identity, rest, ok := strings.Cut(tail, "}:")
	sequence, generation, since := strings.Cut(rest, ":")
	if !since {
		generation = "0"
	}
	parts := strings.Split(identity, ":")
	if !ok || len(parts) != 4 {
		return window.Cell{}, fmt.Errorf("%q: %w", key, errForeignKey)
	}
	durationMs, err1 := strconv.ParseInt(parts[3], 10, 64)
	n, err2 := strconv.ParseInt(sequence, 10, 64)
	g, err3 := strconv.ParseUint(generation, 10, 16)
	if err := errors.Join(err1, err2, err3); err != nil {
		return window.Cell{}, fmt.Errorf("%q: %w: %w", key, errForeignKey, err)
	}
	c := window.Cell{Key: window.Key{
		Workspace:  unescaped(parts[0]),
		Namespace:  unescaped(parts[1]),
		Identifier: unescaped(parts[2]),
		Duration:   time.Duration(durationMs) * time.Millisecond,
		Mode:       mode,
		Generation: window.Generation(g),
	}, Sequence: n}
	if k.key(c) != key { // something that this would write otherwise, or not at all
		return window.Cell{}, fmt.Errorf("%q: %w", key, errForeignKey)
	}
	if err := c.Validate(); err != nil { // such a cell would make a whole row of changes unreadable
		return window.Cell{}, fmt.Errorf("%.100q: %w: %w", key, errForeignKey, err)
	}
	return c, nil
}

func (k keyspace) modeOf(key string) (mode window.Mode, tail string, ok bool) {
	for mode, head := range k.heads {
		if tail, ok := strings.CutPrefix(key, head); ok {
			return window.Mode(mode), tail, true
		}
	}
	return 0, "", false
}

func special(c byte) bool {
	return c <= ' ' || c == 0x7f || c == '%' || c == ':' || c == '{' || c == '}'
}

func appendEscaped(b []byte, name string) []byte {
	const hex = "0123456789ABCDEF"
	for i := range len(name) {
		if c := name[i]; special(c) {
			b = append(b, '%', hex[c>>4], hex[c&15])
		} else {
			b = append(b, c)
		}
	}
	return b
}

// unescaped replaces escapes, and leaves any other text as it is.
func unescaped(s string) string {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				b = append(b, byte(c))
				i += 2
				continue
			}
		}
		b = append(b, s[i])
	}
	return string(b)
}

// jitterMax bounds how much longer than its grace a key may stay.
const jitterMax = time.Minute

// jitter spreads the ends of keys whose cells end together over a tenth of their duration, so that a server does not
// expire all of them at once. It must be the same each time, because every increment sets the expiry again. It uses
// FNV-1a, because the hashes that shard keys (CRC16, or a rendezvous over another hash) must not determine the expiry
// too.
func jitter(key string, d time.Duration) time.Duration {
	h := uint64(14695981039346656037)
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * 1099511628211
	}
	return time.Duration(h % uint64(min(d/10, jitterMax)+1))
}
