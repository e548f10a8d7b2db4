package memstore

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/weirhq/weir/dataplane/store"
)

// Read implements store.News.
func (n *News) Read(
	ctx context.Context, region string, after map[store.Stream]store.NewsCursor, maxBytes int,
) (store.NewsPage, error) {
	n.count(func(s *NewsStats) { s.Reads++ })
	var page store.NewsPage
	err := n.Faults.roundTrip(ctx, OpReadNews, func(journey) error {
		n.mu.Lock()
		defer n.mu.Unlock()
		page = n.pageLocked(region, after, maxBytes)
		n.readLocked(page.Rows)
		return nil
	})
	if err != nil {
		return store.NewsPage{}, err
	}
	return page, nil
}

func (n *News) pageLocked(region string, after map[store.Stream]store.NewsCursor, maxBytes int) store.NewsPage {
	page := store.NewsPage{Now: n.clock()}
	sum := 0
	for _, name := range slices.SortedFunc(maps.Keys(n.streams), compareStreams) {
		if name.Region == region {
			continue
		}
		s := n.streams[name]
		for _, row := range s.rows[s.after(after[name]):] {
			if len(page.Rows) > 0 && sum >= maxBytes {
				page.More = true
				break
			}
			page.Rows = append(page.Rows, row)
			sum += len(row.Payload) + store.NewsRowBytes
		}
	}
	page.Rows = copyRows(page.Rows)
	return page
}

func compareStreams(a, b store.Stream) int {
	return cmp.Or(cmp.Compare(a.Region, b.Region), cmp.Compare(a.Shard, b.Shard))
}
