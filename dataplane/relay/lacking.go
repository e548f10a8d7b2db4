package relay

import (
	"time"

	"github.com/weirhq/weir/dataplane/store"
)

// lacking knows the streams of which names were not read: of windows that had seemed to be in the future, or of rows
// that could not be read. They are read again from their last snapshots, which have all names.
type lacking map[store.Stream]lack

type lack struct {
	within  bool      // a snapshot is being read, and not to its end
	again   bool      // it is to be read again
	begunAt time.Time // when it was read again last
}

const lackingEvery = 30 * time.Second

// note takes note of a row that was read with so many counts whose names were not. Within a snapshot they are in its
// later parts.
func (l lacking) note(row *store.FeedRow, nameless int) {
	of := l[row.Stream]
	if row.Snapshot != 0 {
		of.within = !row.Last
	}
	if nameless > 0 && !of.within {
		of.again = true
	}
	if of == (lack{}) {
		delete(l, row.Stream)
		return
	}
	l[row.Stream] = of
}

// begin takes the cursors of streams that lack names away, at most every lackingEvery, and forgets the streams that
// have lacked none for that long.
func (l lacking) begin(after map[store.Stream]store.FeedCursor, now time.Time) {
	for s, of := range l {
		switch {
		case now.Sub(of.begunAt) < lackingEvery:
		case of.again:
			l[s] = lack{within: of.within, begunAt: now}
			delete(after, s)
		case !of.within:
			delete(l, s)
		}
	}
}

// isWithin tells whether the last page ended within a snapshot that is being read.
func (l lacking) isWithin() bool {
	for _, of := range l {
		if of.within {
			return true
		}
	}
	return false
}
