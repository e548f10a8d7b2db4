package dataplane

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// A bulletin is a store.Digest whose payload is counts. Names that keys have in common are
// written once:
//
//	kind, then for each family: workspace, namespace, duration_ms, mode, number of counts,
//	and for each: identifier, sequence, count, ms from acceptance to made_at + 1 (0: unknown)
//
// Texts have their length before them; numbers are varints.

// bulletinRowBytesMax is what one count takes at most, with a family of its own.
const bulletinRowBytesMax = window.WorkspaceBytesMax + window.NamespaceBytesMax + window.IdentifierBytesMax + 8*binary.MaxVarintLen64

// encodeBulletin writes as many counts as fit, sorted by cell.
func encodeBulletin(counts []store.Count, madeAtMs int64) (payload []byte, told int) {
	slices.SortFunc(counts, func(a, b store.Count) int { return a.Cell.Compare(b.Cell) })
	b := []byte{digestBulletin}
	text := func(s string) {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	for len(counts) > 0 && len(b) < store.DigestBytesMax-2*bulletinRowBytesMax {
		first := &counts[0].Cell.Key
		n := 1
		for n < len(counts) && sameFamily(first, &counts[n].Cell.Key) {
			n++
		}
		n = min(n, (store.DigestBytesMax-len(b))/bulletinRowBytesMax)
		text(first.Workspace)
		text(first.Namespace)
		b = binary.AppendUvarint(b, uint64(first.DurationMs()))
		b = append(b, byte(first.Mode))
		b = binary.AppendUvarint(b, uint64(n))
		for _, c := range counts[:n] {
			text(c.Cell.Identifier)
			b = binary.AppendVarint(b, c.Cell.Sequence)
			b = binary.AppendUvarint(b, uint64(c.Count))
			age := uint64(0)
			if c.CountedAtMs > 0 {
				age = uint64(max(0, madeAtMs-c.CountedAtMs)) + 1
			}
			b = binary.AppendUvarint(b, age)
		}
		counts = counts[n:]
		told += n
	}
	return b, told
}

func sameFamily(a, b *window.Key) bool {
	return a.Workspace == b.Workspace && a.Namespace == b.Namespace && a.Duration == b.Duration && a.Mode == b.Mode
}

// DigestCounts returns the counts that a digest tells of its region, none if it is a filter: for
// tools that show what regions know of each other.
func DigestCounts(d *store.Digest) ([]store.Count, error) {
	if len(d.Filter) == 0 || d.Filter[0] != digestBulletin {
		return nil, nil
	}
	r := reader{rest: d.Filter[1:]}
	var counts []store.Count
	for len(r.rest) > 0 && !r.broken {
		key := window.Key{Workspace: r.text(), Namespace: r.text(), Duration: r.duration(), Mode: window.Mode(r.byte())}
		for n := r.number(); n > 0 && !r.broken; n-- {
			key.Identifier = r.text()
			c := store.Count{Cell: window.Cell{Key: key, Sequence: r.signed()}, Count: int64(min(r.number(), window.LimitMax)), Shared: true}
			if age := r.number(); age > 0 {
				c.CountedAtMs = max(1, d.MadeAtMs-int64(min(age-1, uint64(max(0, d.MadeAtMs)))))
			}
			if err := c.Cell.Validate(); err != nil || r.broken {
				return nil, fmt.Errorf("%w: bulletin of %q, count %d: %w", errDigest, d.Node, len(counts), cmp.Or(err, errDigest))
			}
			counts = append(counts, c)
		}
	}
	if r.broken {
		return nil, fmt.Errorf("%w: bulletin of %q ends after %d counts", errDigest, d.Node, len(counts))
	}
	return counts, nil
}

// reader takes a payload apart. Once something is missing all that follows is zero.
type reader struct {
	rest   []byte
	broken bool
}

func (r *reader) skip(n int) []byte {
	if n <= 0 || n > len(r.rest) {
		r.broken, r.rest = true, nil
		return nil
	}
	taken := r.rest[:n]
	r.rest = r.rest[n:]
	return taken
}

func (r *reader) number() uint64 {
	v, n := binary.Uvarint(r.rest)
	if r.skip(n) == nil {
		return 0
	}
	return v
}

func (r *reader) signed() int64 {
	v, n := binary.Varint(r.rest)
	if r.skip(n) == nil {
		return 0
	}
	return v
}

func (r *reader) byte() byte {
	if b := r.skip(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) text() string {
	n := r.number()
	if n == 0 || n > uint64(len(r.rest)) {
		r.broken = true // no name is empty
		return ""
	}
	return string(r.skip(int(n)))
}

func (r *reader) duration() time.Duration {
	return milliseconds(int64(min(r.number(), uint64(window.DurationMax.Milliseconds())+1)))
}
