package memstore

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"

	"github.com/weirhq/weir/dataplane/store"
)

// Read implements store.Feed.
func (n *Feed) Read(ctx context.Context, q store.FeedQuery) (store.FeedPage, error) {
	var page store.FeedPage
	err := n.Faults.roundTrip(ctx, OpReadFeed, func(journey) error {
		n.mu.Lock()
		defer n.mu.Unlock()
		page = n.pageLocked(q)
		return nil
	})
	if err != nil {
		return store.FeedPage{}, err
	}
	return page, nil
}

func (n *Feed) pageLocked(q store.FeedQuery) store.FeedPage {
	page := store.FeedPage{Now: n.clock(), Settings: n.settings()}
	sum := 0
	var names []store.Stream
	names, page.Full = n.namesLocked(q)
	for _, name := range names {
		for _, row := range n.streams[name].after(q.After[name], q.Prove, q.Parts) {
			if len(page.Rows) > 0 && sum >= q.MaxBytes {
				page.More = true
				break
			}
			page.Rows = append(page.Rows, row)
			sum += len(row.Payload) + store.FeedRowBytes
		}
	}
	page.Rows, page.Gone = copyRows(page.Rows), n.goneLocked(q)
	return page
}

// namesLocked returns the streams that are read. full reports whether there are others.
func (n *Feed) namesLocked(q store.FeedQuery) (names []store.Stream, full bool) {
	room := cmp.Or(q.StreamsMax, math.MaxInt)
	hasCursor := func(name store.Stream) bool { return n.streams[name].has(q.After[name], q.Prove) }
	for name := range n.streams {
		if name.Region != q.Region && hasCursor(name) {
			room--
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(n.streams), compareStreams) {
		switch {
		case name.Region == q.Region || len(n.streams[name].rows) == 0:
		case hasCursor(name):
			names = append(names, name)
		case room > 0:
			names = append(names, name)
			room--
		default:
			full = true
		}
	}
	return names, full
}

// goneLocked returns the streams with a cursor and without a stored row.
func (n *Feed) goneLocked(q store.FeedQuery) (gone []store.Stream) {
	for name, cursor := range q.After {
		s := n.streams[name]
		if q.Prove && name.Region != q.Region && cursor != (store.FeedCursor{}) && (s == nil || len(s.rows) == 0) {
			gone = append(gone, name)
		}
	}
	return gone
}

func compareStreams(a, b store.Stream) int {
	return cmp.Or(cmp.Compare(a.Region, b.Region), cmp.Compare(a.Shard, b.Shard))
}
