package relay

import (
	"time"

	"github.com/weirhq/weir/dataplane/store"
)

// lacking tracks the streams with counts whose names were not read, for example because their window seemed to be in
// the future, or because a row could not be decoded. The relay reads such a stream again from its last snapshot, which
// has all names.
type lacking map[store.Stream]lack

type lack struct {
	within  bool      // reading is in the middle of a snapshot
	again   bool      // the stream must be read again
	begunAt time.Time // when it was last read again
}

const lackingEvery = 30 * time.Second

// note records that a row had nameless counts whose names were not read. Within a snapshot they do no harm, because
// later parts have the names.
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

// begin removes the cursors of streams that lack names, so that they are read again, at most once every lackingEvery.
// It forgets streams that have lacked no names for that long.
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

// isWithin reports whether the last page ended in the middle of a snapshot.
func (l lacking) isWithin() bool {
	for _, of := range l {
		if of.within {
			return true
		}
	}
	return false
}
